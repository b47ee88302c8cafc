//! Names as numbers: events hold four bytes for a name, and equal names are compared as numbers.

use crate::trace::Text;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Names, each with its number in the order of appearance.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    known: HashMap<Text, u32, RandomState>,
    names: Vec<Text>,
}

impl Symbols {
    /// The number of a name; new names get the next one.
    pub fn add(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.known.get(name) {
            return id;
        }
        let (id, text) = (self.names.len() as u32, Text::from(name));
        self.known.insert(Text::clone(&text), id);
        self.names.push(text);
        id
    }

    /// Adds all names of others, in their order; gives the number here of each.
    pub(crate) fn join(&mut self, others: &Self) -> Vec<u32> {
        others.names.iter().map(|name| self.add(name)).collect()
    }

    /// The number of a name that may not be there.
    pub fn find(&self, name: &str) -> Option<u32> {
        self.known.get(name).copied()
    }

    /// The name of a number; empty for one that was never handed out.
    pub fn name(&self, id: u32) -> &str {
        self.names.get(id as usize).map_or("", |n| n)
    }

    /// All names, by number.
    pub fn names(&self) -> &[Text] {
        &self.names
    }

    /// For each name whether it is one of those meant.
    pub(crate) fn mask(&self, meant: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|n| meant(n)).collect()
    }
}
