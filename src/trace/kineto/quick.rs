//! The short way through a plain event: one look at each byte, where the general way takes three (to find its end, to read it, to read its
//! numbers). Whatever is not plain (an escape in a string, a number at the limits, deep nesting, anything that is no JSON) is `None`, and
//! goes the general way: what this reads, that reads alike, and only that says what is wrong.

use super::written::{Arguments, Written};
use crate::trace::raw::Raw;
use std::borrow::Cow;

/// Nesting that is still plain.
const DEEPEST: u32 = 16;

/// The event that a text begins with, and its length; `None` also where the text ends inside it.
pub(super) fn event<'a, A: Arguments<'a>>(text: &'a [u8]) -> Option<(Written<'a, A>, usize)> {
    let mut quick = Quick { text, at: 0 };
    let mut out = Written::default();
    quick.object(|quick, key| {
        match key {
            b"ph" => out.phase = Some(quick.text()?),
            b"cat" => out.category = Some(quick.text()?),
            b"name" => out.name = Some(quick.text()?),
            b"pid" => out.pid = Some(quick.raw(0)?),
            b"tid" => out.tid = Some(quick.raw(0)?),
            b"id" => out.id = Some(quick.raw(0)?),
            b"ts" => out.ts = Some(quick.number()?),
            b"dur" => out.dur = Some(quick.number()?),
            b"args" => {
                let mut args = A::default();
                quick.object(|quick, key| {
                    let key = std::str::from_utf8(key).ok()?;
                    if A::wants(key) {
                        args.put(Cow::Borrowed(key), quick.raw(0)?);
                        Some(())
                    } else {
                        quick.pass(0)
                    }
                })?;
                out.args = args;
            }
            _ => {
                // The general way looks at keys as text.
                std::str::from_utf8(key).ok()?;
                quick.pass(0)?;
            }
        }
        Some(())
    })?;
    Some((out, quick.at))
}

struct Quick<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Quick<'a> {
    fn peek(&mut self) -> Option<u8> {
        loop {
            let b = *self.text.get(self.at)?;
            if !matches!(b, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(b);
            }
            self.at += 1;
        }
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        (self.peek()? == wanted).then(|| self.at += 1)
    }

    /// A string without escapes, without its quotes.
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            let b = *self.text.get(self.at)?;
            self.at += 1;
            match b {
                b'"' => return self.text.get(start..self.at - 1),
                b'\\' | 0..=0x1f => return None,
                _ => {}
            }
        }
    }

    fn text(&mut self) -> Option<Cow<'a, str>> {
        self.string().and_then(|bytes| std::str::from_utf8(bytes).ok()).map(Cow::Borrowed)
    }

    fn digits(&mut self) -> Option<usize> {
        let start = self.at;
        while self.text.get(self.at)?.is_ascii_digit() {
            self.at += 1;
        }
        (self.at > start).then_some(self.at - start)
    }

    /// A number as it stands. It ends before another byte: at the end of the text it may go on.
    fn number(&mut self) -> Option<&'a str> {
        self.peek()?;
        let start = self.at;
        if *self.text.get(self.at)? == b'-' {
            self.at += 1;
        }
        let first = *self.text.get(self.at)?;
        if self.digits()? > 1 && first == b'0' {
            return None;
        }
        if *self.text.get(self.at)? == b'.' {
            self.at += 1;
            self.digits()?;
        }
        if matches!(*self.text.get(self.at)?, b'e' | b'E') {
            self.at += 1;
            if matches!(*self.text.get(self.at)?, b'+' | b'-') {
                self.at += 1;
            }
            self.digits()?;
        }
        std::str::from_utf8(self.text.get(start..self.at)?).ok()
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text.get(self.at..)?.starts_with(word).then(|| self.at += word.len())
    }

    /// An object, whose values `value` reads.
    fn object(&mut self, mut value: impl FnMut(&mut Self, &'a [u8]) -> Option<()>) -> Option<()> {
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
            b'"' => Raw::Str(self.text()?),
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
                let text = self.number()?;
                if text.bytes().all(|b| b.is_ascii_digit() || b == b'-') {
                    // Minus nothing is no integer, and long ones may not fit.
                    let plain = text.len() <= 18 && text != "-0";
                    Raw::Int(text.parse().ok().filter(|_| plain)?)
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
    fn same(text: &[u8]) -> bool {
        let Some((quick, used)) = event::<All<'_>>(text) else { return false };
        let general: Written<'_, All<'_>> = serde_json::from_slice(&text[..used]).unwrap();
        assert_eq!(format!("{quick:?}"), format!("{general:?}"));
        assert!(serde_json::from_slice::<Written<'_, All<'_>>>(&text[..used - 1]).is_err());
        true
    }

    #[test]
    fn plain_events_go_the_short_way() {
        let plain = br#"{ "ph": "X", "cat":"kernel","name": "f<int>(\u00fc)", "pid": 0, "tid": "a", "ts": 17.25, "dur": 1,
            "args": {"stream": 7, "x": [[1, 2.5e3], {"a": null}], "b": [true, -3, [], {}, "z"], "c": 0.1}, "other": {"q": [1]}} , "#;
        assert!(!same(plain), "an escape");
        let text = String::from_utf8(plain.to_vec()).unwrap().replace("\\u00fc", "ü");
        assert!(same(text.as_bytes()));
        for end in 0..text.trim_end_matches([' ', ',']).len() {
            assert!(event::<All<'_>>(&text.as_bytes()[..end]).is_none(), "cut at {end}");
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
            assert!(event::<All<'_>>(odd.as_bytes()).is_none(), "{odd}");
        }
        assert!(event::<All<'_>>(b"{\"ph\": \"\xff\"}").is_none());
        assert!(same(b"{\"args\": {\"x\": \"\xff\"}}"), "what is passed over need be no UTF-8");
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
            same(&text);
        }
    }
}
