//! The short way through a plain event: one look at each byte, where the general way takes three (to find its end, to read it, to read its
//! numbers). Whatever is not plain (an escape in a string, a number at the limits, deep nesting, anything that is no JSON) is `None`, and
//! goes the general way: what this reads, that reads alike, and only that says what is wrong.

use super::written::{Arguments, Written};
use crate::trace::raw::Raw;
use std::borrow::Cow;

/// Nesting that is still plain.
const DEEPEST: u32 = 16;

/// Reads the event that a text begins with into an empty one; gives its length. `None` also where the text ends inside it, and then what was
/// read is of no use.
pub(super) fn event<'a, A: Arguments<'a>>(text: &'a str, out: &mut Written<'a, A>) -> Option<usize> {
    let mut quick = Quick { text, at: 0 };
    quick.object(|quick, key| {
        match key {
            "ph" => out.phase = Some(Cow::Borrowed(quick.string()?)),
            "cat" => out.category = Some(Cow::Borrowed(quick.string()?)),
            "name" => out.name = Some(Cow::Borrowed(quick.string()?)),
            "pid" => out.pid = Some(quick.raw(0)?),
            "tid" => out.tid = Some(quick.raw(0)?),
            "id" => out.id = Some(quick.raw(0)?),
            "ts" => out.ts = Some(quick.number()?.0),
            "dur" => out.dur = Some(quick.number()?.0),
            "args" => {
                // Of two lists of arguments the last one counts, in the general way too.
                out.args = A::default();
                quick.object(|quick, key| {
                    if A::wants(key) {
                        out.args.put(Cow::Borrowed(key), quick.raw(0)?);
                        Some(())
                    } else {
                        quick.pass(0)
                    }
                })?;
            }
            _ => quick.pass(0)?,
        }
        Some(())
    })?;
    Some(quick.at)
}

const ONES: u64 = 0x0101_0101_0101_0101;

/// The bytes of eight that end a string or are not plain in it: a quotation mark, a backslash, a control character. Each has its highest bit set;
/// above the first of them others may be set, too.
#[inline]
fn ends(eight: u64) -> u64 {
    let below = |word: u64, least: u64| word.wrapping_sub(ONES * least) & !word;
    let equal = |byte: u8| below(eight ^ (ONES * u64::from(byte)), 1);
    (equal(b'"') | equal(b'\\') | below(eight, 0x20)) & (ONES << 7)
}

/// The bytes of eight that are no digits, each with its highest bit set.
#[inline]
fn no_digits(eight: u64) -> u64 {
    let values = eight ^ (ONES * u64::from(b'0'));
    // What is above 9 has its highest bit, or gets it when 118 is added; nothing is carried into the byte above.
    (((values & (ONES * 0x7f)) + ONES * 0x76) | values) & (ONES << 7)
}

/// Behind the bytes from a place on that `odd` does not mark, of which eight are looked at together; `None` where the text ends first.
#[inline]
fn behind(bytes: &[u8], from: usize, odd: impl Fn(u64) -> u64) -> Option<usize> {
    let mut at = from;
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        let found = odd(u64::from_le_bytes(*eight));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    behind_last(bytes, at, odd)
}

/// The same of less than eight bytes.
#[cold]
#[inline(never)]
fn behind_last(bytes: &[u8], from: usize, odd: impl Fn(u64) -> u64) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let alone = |b: &u8| odd(u64::from_le_bytes([*b, b' ', b' ', b' ', b' ', b' ', b' ', b' '])) & 0x80 != 0;
    rest.iter().position(alone).map(|n| from + n)
}

/// A whole number; minus nothing is no integer, and long ones may not fit.
#[inline]
fn integer(text: &str) -> Option<i64> {
    if text.len() > 18 || text == "-0" {
        return None;
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    let value = digits.bytes().fold(0, |value, b| value * 10 + i64::from(b & 0xf));
    Some(if digits.len() < text.len() { -value } else { value })
}

struct Quick<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Quick<'a> {
    #[inline]
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let b = self.byte()?;
            if !matches!(b, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(b);
            }
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// A string without escapes, without its quotes.
    #[inline]
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.at;
        let at = behind(self.text.as_bytes(), start, ends)?;
        if *self.text.as_bytes().get(at)? != b'"' {
            return None;
        }
        self.at = at + 1;
        self.text.get(start..at)
    }

    /// A number as it stands, and whether it is a whole one by its writing. It ends before another byte: at the end of the text it may go on.
    #[inline]
    fn number(&mut self) -> Option<(&'a str, bool)> {
        let bytes = self.text.as_bytes();
        // Behind the digits from a place on, of which there is at least one.
        let digits = |from: usize| behind(bytes, from, no_digits).filter(|at| *at > from);
        let first = self.peek()?;
        let start = self.at;
        let from = start + usize::from(first == b'-');
        let mut at = digits(from)?;
        if at - from > 1 && bytes.get(from) == Some(&b'0') {
            return None;
        }
        let mut whole = true;
        if *bytes.get(at)? == b'.' {
            whole = false;
            at = digits(at + 1)?;
        }
        if matches!(*bytes.get(at)?, b'e' | b'E') {
            whole = false;
            at = digits(at + 1 + usize::from(matches!(*bytes.get(at + 1)?, b'+' | b'-')))?;
        }
        self.at = at;
        Some((self.text.get(start..at)?, whole))
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text.as_bytes().get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    /// An object, whose values `value` reads.
    fn object(&mut self, mut value: impl FnMut(&mut Self, &'a str) -> Option<()>) -> Option<()> {
        self.expect(b'{')?;
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            value(self, key)?;
            let b = self.peek()?;
            self.at += 1;
            match b {
                b',' => {}
                b'}' => return Some(()),
                _ => return None,
            }
        }
    }

    fn list(&mut self, mut item: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.expect(b'[')?;
        if self.peek()? == b']' {
            self.at += 1;
            return Some(());
        }
        loop {
            item(self)?;
            let b = self.peek()?;
            self.at += 1;
            match b {
                b',' => {}
                b']' => return Some(()),
                _ => return None,
            }
        }
    }

    /// Passes over a value.
    fn pass(&mut self, depth: u32) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match self.peek()? {
            b'"' => self.string().map(drop),
            b'{' => self.object(|quick, _| quick.pass(depth + 1)),
            b'[' => self.list(|quick| quick.pass(depth + 1)),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number().map(drop),
        }
    }

    /// Reads a value.
    fn raw(&mut self, depth: u32) -> Option<Raw<'a>> {
        if depth > DEEPEST {
            return None;
        }
        Some(match self.peek()? {
            b'"' => Raw::Str(Cow::Borrowed(self.string()?)),
            b'{' => {
                self.pass(depth)?;
                Raw::Map
            }
            b'[' => {
                let mut items = Vec::new();
                self.list(|quick| {
                    items.push(quick.raw(depth + 1)?);
                    Some(())
                })?;
                Raw::List(items)
            }
            b't' => self.word(b"true").map(|()| Raw::Bool(true))?,
            b'f' => self.word(b"false").map(|()| Raw::Bool(false))?,
            b'n' => self.word(b"null").map(|()| Raw::Null)?,
            _ => {
                let (text, whole) = self.number()?;
                if whole {
                    Raw::Int(integer(text)?)
                } else {
                    Raw::Float(text.parse().ok().filter(|x: &f64| x.is_finite())?)
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Keeps every argument but those that begin with an x.
    #[derive(Debug, Default)]
    struct All<'a>(Vec<(Cow<'a, str>, Raw<'a>)>);

    impl<'a> Arguments<'a> for All<'a> {
        fn wants(key: &str) -> bool {
            !key.starts_with('x')
        }
        fn put(&mut self, key: Cow<'a, str>, value: Raw<'a>) {
            self.0.push((key, value));
        }
    }

    /// What is read quickly is what is read in general, and that stops at the same byte.
    fn same(text: &str) -> bool {
        let mut quick = Written::<All<'_>>::default();
        let Some(used) = event(text, &mut quick) else { return false };
        let general: Written<'_, All<'_>> = serde_json::from_str(&text[..used]).unwrap();
        assert_eq!(format!("{quick:?}"), format!("{general:?}"));
        assert!(serde_json::from_slice::<Written<'_, All<'_>>>(&text.as_bytes()[..used - 1]).is_err());
        true
    }

    #[test]
    fn plain_events_go_the_short_way() {
        let plain = r#"{ "ph": "X", "cat":"kernel","name": "f<int>(\u00fc)", "pid": 0, "tid": "a", "ts": 17.25, "dur": 1,
            "args": {"stream": 7, "x": [[1, 2.5e3], {"a": null}], "b": [true, -3, [], {}, "z"], "c": 0.1}, "other": {"q": [1]}} , "#;
        assert!(!same(plain), "an escape");
        let text = plain.replace("\\u00fc", "ü");
        assert!(same(&text));
        for end in 0..text.trim_end_matches([' ', ',']).len() {
            assert!(!text.is_char_boundary(end) || !same(&text[..end]), "cut at {end}");
        }
        for odd in [
            r#"{"pid": -0}"#,
            r#"{"pid": 01}"#,
            r#"{"pid": 1.}"#,
            r#"{"pid": .5}"#,
            r#"{"pid": 1e}"#,
            r#"{"pid": 1e999}"#,
            r#"{"pid": 12345678901234567890}"#,
            r#"{"pid": 1,}"#,
            r#"{"pid": nul}"#,
            r#"{"args": 3}"#,
            r#"{"ph": 3}"#,
            "{\"ph\": \"a\nb\"}",
            "{\"ph\" \"a\"}",
            "[]",
            "",
        ] {
            assert!(!same(odd), "{odd}");
        }
        assert!(same(r#"{"args": {"a": 1}, "args": {"b": "01234567"}}"#));
        // Every byte that may stand in a string, at every place of the eight that are looked at together.
        for byte in 0u8..0x80 {
            for before in 0..9 {
                let text =
                    format!("{{\"ph\": \"{}{}é{}\", \"name\": \"\"}}", "a".repeat(before), byte as char, "b".repeat(9));
                assert_eq!(same(&text), byte >= 0x20 && byte != b'"' && byte != b'\\', "{text}");
            }
        }
    }

    proptest! {
        /// Any damage to an event leaves the two ways in agreement.
        #[test]
        fn both_ways_agree(at in 0usize..400, with in proptest::collection::vec(any::<u8>(), 0..3), cut in 0usize..3) {
            let mut text = br#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 17, "tid": -18, "ts": 1707417525512283.457, "dur": 5.0e1,
                "args": {"External id": 5, "Input Dims": [[2, 3], [], [[1]]], "x": {"y": [0.5, true, null]}, "correlation": 123456789012345678}}"#.to_vec();
            let at = at.min(text.len());
            let end = (at + cut).min(text.len());
            text.splice(at..end, with);
            if let Ok(text) = std::str::from_utf8(&text) {
                same(text);
            }
        }
    }
}
