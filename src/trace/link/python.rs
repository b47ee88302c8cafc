//! Lists in Python's notation, as Chakra's converter writes arguments: strings in either quotes, `True`, `False`, `None`, otherwise as JSON.

use crate::trace::raw::Raw;
use std::borrow::Cow;

/// As deep as lists in JSON may nest.
const DEEPEST: usize = 128;

/// Lists that were read and are of no more use, to be filled again: a trace has a hundred thousand, of which few are wanted longer than to be looked at.
pub(super) type Spare<'a> = Vec<Vec<Raw<'a>>>;

/// So many are kept.
const MOST_SPARE: usize = 64;

/// Keeps a list and those in it.
pub(super) fn give_back<'a>(mut items: Vec<Raw<'a>>, spare: &mut Spare<'a>) {
    for item in items.drain(..) {
        if let Raw::List(inner) = item {
            give_back(inner, spare);
        }
    }
    if items.capacity() > 0 && spare.len() < MOST_SPARE {
        spare.push(items);
    }
}

/// Reads a list, borrowing the strings that have no escapes.
///
/// # Errors
/// What was expected at which byte.
pub(super) fn list<'a>(text: &'a str, spare: &mut Spare<'a>) -> Result<Vec<Raw<'a>>, String> {
    // Half of what is asked for.
    if text == "[]" {
        return Ok(Vec::new());
    }
    let mut reader = Reader { text, at: 0, spare };
    let value = reader.value(0)?;
    if reader.skip().is_some() {
        return Err(reader.expected("the end"));
    }
    match value {
        Raw::List(items) => Ok(items),
        other => Err(format!("expected a list, found {}", other.kind())),
    }
}

struct Reader<'a, 's> {
    text: &'a str,
    at: usize,
    spare: &'s mut Spare<'a>,
}

impl<'a> Reader<'a, '_> {
    fn expected(&self, what: &str) -> String {
        match self.text.get(self.at..).and_then(|rest| rest.chars().next()) {
            Some(c) => format!("expected {what} at byte {}, found {c:?}", self.at),
            None => format!("expected {what} at byte {}, found the end", self.at),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is no blank.
    fn skip(&mut self) -> Option<u8> {
        loop {
            match self.peek() {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other,
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Raw<'a>, String> {
        match self.skip() {
            Some(b'[') => self.items(depth),
            Some(b'{') => self.entries(depth),
            Some(b'\'' | b'"') => self.string().map(Raw::Str),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'A'..=b'Z' | b'a'..=b'z') => self.word(),
            _ => Err(self.expected("a value")),
        }
    }

    /// After one of several things in brackets: whether another one follows.
    fn more(&mut self, close: u8) -> Result<bool, String> {
        match self.skip() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(b) if b == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.expected(&format!("`,` or `{}`", char::from(close)))),
        }
    }

    /// Past an opening bracket: whether anything is in it.
    fn open(&mut self, close: u8, depth: usize) -> Result<bool, String> {
        if depth >= DEEPEST {
            return Err(self.expected(&format!("no list deeper than {DEEPEST}")));
        }
        self.at += 1;
        let empty = self.skip() == Some(close);
        self.at += usize::from(empty);
        Ok(!empty)
    }

    fn items(&mut self, depth: usize) -> Result<Raw<'a>, String> {
        let mut more = self.open(b']', depth)?;
        // A tensor has six.
        let mut items = match more {
            true => self.spare.pop().unwrap_or_else(|| Vec::with_capacity(6)),
            false => Vec::new(),
        };
        while more {
            items.push(self.value(depth + 1)?);
            more = self.more(b']')?;
        }
        Ok(Raw::List(items))
    }

    fn entries(&mut self, depth: usize) -> Result<Raw<'a>, String> {
        let mut more = self.open(b'}', depth)?;
        while more {
            self.value(depth + 1)?;
            if self.skip() != Some(b':') {
                return Err(self.expected("`:`"));
            }
            self.at += 1;
            self.value(depth + 1)?;
            more = self.more(b'}')?;
        }
        Ok(Raw::Map)
    }

    fn string(&mut self) -> Result<Cow<'a, str>, String> {
        let bytes = self.text.as_bytes();
        let quote = self.peek();
        self.at += 1;
        let start = self.at;
        let ends = |from: usize| bytes.iter().skip(from).position(|b| Some(*b) == quote || *b == b'\\');
        let Some(length) = ends(start) else { return Err("expected the end of a string".into()) };
        let piece = self.text.get(start..start + length).unwrap_or_default();
        self.at = start + length + 1;
        if bytes.get(start + length).copied() == quote {
            return Ok(Cow::Borrowed(piece));
        }
        let mut out = piece.to_owned();
        loop {
            // Behind a backslash.
            self.escaped(&mut out)?;
            let from = self.at;
            let Some(length) = ends(from) else { return Err("expected the end of a string".into()) };
            out.push_str(self.text.get(from..from + length).unwrap_or_default());
            self.at = from + length + 1;
            if bytes.get(from + length).copied() == quote {
                return Ok(Cow::Owned(out));
            }
        }
    }

    fn escaped(&mut self, out: &mut String) -> Result<(), String> {
        let Some(c) = self.peek() else { return Err(self.expected("an escaped character")) };
        if c == b'\'' {
            out.push('\'');
            self.at += 1;
            return Ok(());
        }
        // The others are JSON's.
        let length = if c == b'u' { 5 } else { 1 };
        let written = self.text.get(self.at..self.at + length);
        let one = written.and_then(|w| serde_json::from_str::<String>(&format!("\"\\{w}\"")).ok());
        out.push_str(&one.ok_or_else(|| self.expected("an escaped character"))?);
        self.at += length;
        Ok(())
    }

    fn number(&mut self) -> Result<Raw<'a>, String> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let start = self.at;
        let (mut read, mut digits) = (0i64, 0usize);
        while let Some(digit) = rest.get(digits).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10 && digits < 19) {
            read = read.wrapping_mul(10).wrapping_add(i64::from(digit));
            digits += 1;
        }
        let after = rest.get(digits);
        if (1..=18).contains(&digits) && !matches!(after, Some(b'.' | b'e' | b'E')) && (digits == 1 || rest[0] != b'0')
        {
            self.at += digits;
            return Ok(Raw::Int(read));
        }
        let number = |b: &u8| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E');
        let length = rest.iter().position(|b| !number(b)).unwrap_or(rest.len());
        let written = self.text.get(start..start + length).unwrap_or_default();
        let read = serde_json::from_str(written).map_err(|_| self.expected("a number"))?;
        self.at += length;
        Ok(read)
    }

    fn word(&mut self) -> Result<Raw<'a>, String> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let length = rest.bytes().position(|b| !b.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let read = match rest.get(..length).unwrap_or_default() {
            "True" | "true" => Raw::Bool(true),
            "False" | "false" => Raw::Bool(false),
            "None" | "null" => Raw::Null,
            _ => return Err(self.expected("a value")),
        };
        self.at += length;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Vec<Raw<'_>>, String> {
        super::list(text, &mut Spare::new())
    }

    #[test]
    fn python_is_read_as_json_is() {
        for (python, json) in [
            ("[1, -2.5e-07, True, False, None]", "[1, -2.5e-07, true, false, null]"),
            (
                "['it', \"it's\", 'a\"b', 'a\\'b\"c', 'x\\\\y\\n\\u00e9']",
                r#"["it", "it's", "a\"b", "a'b\"c", "x\\y\né"]"#,
            ),
            ("['<None>', [[3, 4, 0, 6, 2, 'cuda:0']], {'a': [1]}]", r#"["<None>", [[3, 4, 0, 6, 2, "cuda:0"]], {}]"#),
            ("[ 1e+20 ,0, 'inf', 18446744073709551615, -7, [] ]", r#"[1e+20, 0, "inf", 18446744073709551615, -7, []]"#),
        ] {
            assert_eq!(Raw::List(list(python).unwrap()), serde_json::from_str(json).unwrap(), "{python}");
        }
        assert_eq!(list("['plain']").unwrap(), [Raw::Str(Cow::Borrowed("plain"))]);
    }

    #[test]
    fn what_is_no_list_is_told() {
        for (text, message) in [
            ("", "expected a value at byte 0, found the end"),
            ("5", "expected a list, found 5"),
            ("[1 2]", "expected `,` or `]` at byte 3, found '2'"),
            ("[1] x", "expected the end at byte 4, found 'x'"),
            ("['a", "expected the end of a string"),
            ("['\\", "expected an escaped character at byte 3, found the end"),
            ("['\\q']", "expected an escaped character at byte 3, found 'q'"),
            ("[nan]", "expected a value at byte 1, found 'n'"),
            ("[012]", "expected a number at byte 1, found '0'"),
            ("[1,]", "expected a value at byte 3, found ']'"),
            ("[é]", "expected a value at byte 1, found 'é'"),
        ] {
            assert_eq!(list(text).unwrap_err(), message, "{text}");
        }
        assert!(list(&"[".repeat(200)).unwrap_err().starts_with("expected no list deeper than 128"));
    }
}
