//! Strings that repeat are held once.

use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::sync::Arc;

/// A string shared by all who hold it.
pub type Text = Arc<str>;

/// Hands out one [`Text`] for equal strings.
#[derive(Debug)]
pub struct Interner {
    // A trace asks millions of times: the standard library's hash takes a good part of the reading.
    known: HashSet<Text, RandomState>,
    /// Half of what is asked for is the empty string.
    empty: Text,
}

impl Default for Interner {
    fn default() -> Self {
        Self { known: HashSet::default(), empty: Arc::from("") }
    }
}

impl Interner {
    /// The shared copy of a string.
    #[inline]
    pub fn get(&mut self, text: &str) -> Text {
        if text.is_empty() {
            return Arc::clone(&self.empty);
        }
        if let Some(found) = self.known.get(text) {
            return Arc::clone(found);
        }
        let new: Text = Arc::from(text);
        self.known.insert(Arc::clone(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one() {
        let mut interner = Interner::default();
        let (a, b, c) = (interner.get("aten::mm"), interner.get("aten::mm"), interner.get("aten::add"));
        assert!(Arc::ptr_eq(&a, &b));
        assert!(!Arc::ptr_eq(&a, &c));
    }
}
