//! Protobuf's text format, read without a schema: names, values and where they stood. A fault does not end the reading:
//! the reader goes on behind it, so that all faults of a file come at once.
//!
//! Read are `name: value`, `name { ... }`, `name: { ... }`, `name < ... >`, lists in brackets, numbers (decimal, hexadecimal,
//! octal, with exponent, with a final `f`), quoted texts with escapes and their concatenation, words, and comments from `#`
//! to the end of the line. Fields may be separated by commas or semicolons.

use super::tree::{Fault, Place};

/// A value before the schema says what it must be.
#[derive(Debug, Clone, PartialEq)]
pub enum Raw {
    /// A number as written, its sign included.
    Number(String),
    /// A word: a truth value, a word of an enum, `inf` or `nan`, with its sign.
    Word(String),
    /// A quoted text.
    Text(String),
    /// A message.
    Message(Vec<RawField>),
    /// A list in brackets.
    List(Vec<(Place, Raw)>),
}

/// A field before the schema says what it must be.
#[derive(Debug, Clone, PartialEq)]
pub struct RawField {
    /// Its name.
    pub name: String,
    /// Where the name stood.
    pub place: Place,
    /// Its value.
    pub value: Raw,
}

/// Deepest nesting: the schemas need five levels, and a bound keeps hostile input off the stack.
const MAX_DEPTH: usize = 32;
/// Most faults noted: behind these the file is something else.
const MAX_FAULTS: usize = 200;

/// Reads a whole text.
pub fn read(text: &str) -> (Vec<RawField>, Vec<Fault>) {
    let mut reader = Reader { rest: text.chars().peekable(), line: 1, column: 1, open: false, faults: Vec::new() };
    let fields = reader.fields(None, 0);
    (fields, reader.faults)
}

struct Reader<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
    column: usize,
    /// Whether an unclosed bracket has been noted: the innermost one says it for those around it.
    open: bool,
    faults: Vec<Fault>,
}

impl Reader<'_> {
    fn place(&self) -> Place {
        Place::Line { line: self.line, column: self.column }
    }

    fn fault(&mut self, place: Place, message: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault::at(place, "", message));
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(c)
    }

    /// Goes past white space and comments.
    fn blank(&mut self) {
        while let Some(c) = self.peek() {
            if c == '#' {
                self.rest_of_line();
            } else if c.is_whitespace() {
                self.next();
            } else {
                break;
            }
        }
    }

    fn rest_of_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// What stands here, for messages.
    fn here(&mut self) -> String {
        match self.peek() {
            Some(c) => format!("{c:?}"),
            None => "the end of the file".into(),
        }
    }

    /// Fields until the closing bracket, or until the end of the file where there is none.
    fn fields(&mut self, open: Option<(Place, char)>, depth: usize) -> Vec<RawField> {
        let mut fields = Vec::new();
        loop {
            self.blank();
            let place = self.place();
            match (self.peek(), open) {
                (None, None) => break,
                (None, Some((from, bracket))) => {
                    if !self.open {
                        let around =
                            if depth > 1 { format!(", nor are the {} around it", depth - 1) } else { String::new() };
                        self.fault(from, format!("this {bracket:?} is never closed{around}: the file ends first"));
                        self.open = true;
                    }
                    break;
                }
                (Some(c), Some((_, bracket))) if c == closing(bracket) => {
                    self.next();
                    break;
                }
                (Some(c @ ('}' | '>')), _) => {
                    self.next();
                    let due = open.map_or("nothing is open".to_string(), |(_, b)| format!("{:?} is due", closing(b)));
                    self.fault(place, format!("found {c:?} where {due}"));
                }
                (Some(c), _) if c.is_ascii_alphabetic() || c == '_' => {
                    let name = self.word();
                    if let Some(value) = self.value_of(&name, depth) {
                        fields.push(RawField { name, place, value });
                    }
                    self.blank();
                    if matches!(self.peek(), Some(',' | ';')) {
                        self.next();
                    }
                }
                (Some('['), _) => {
                    self.fault(place, "extension and any fields in brackets are not part of these files");
                    self.rest_of_line();
                }
                (Some(c), _) => {
                    self.fault(place, format!("expected the name of a field, found {c:?}"));
                    self.rest_of_line();
                }
            }
            if self.faults.len() >= MAX_FAULTS {
                // Not worth reading on; the end of the file closes everything.
                self.open = true;
                while self.next().is_some() {}
                break;
            }
        }
        fields
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek().filter(|c| c.is_ascii_alphanumeric() || *c == '_') {
            word.push(c);
            self.next();
        }
        word
    }

    /// The value behind a field's name.
    fn value_of(&mut self, name: &str, depth: usize) -> Option<Raw> {
        self.blank();
        let colon = self.peek() == Some(':');
        if colon {
            self.next();
            self.blank();
        }
        let place = self.place();
        match self.peek() {
            Some(bracket @ ('{' | '<')) => self.message(bracket, depth),
            Some('[') if colon => self.list(depth),
            _ if colon => self.scalar(),
            _ => {
                let found = self.here();
                self.fault(place, format!("expected ':' or '{{' behind {name:?}, found {found}"));
                self.rest_of_line();
                None
            }
        }
    }

    fn message(&mut self, bracket: char, depth: usize) -> Option<Raw> {
        let place = self.place();
        self.next();
        if depth >= MAX_DEPTH {
            self.fault(place, format!("nested deeper than {MAX_DEPTH} levels"));
            self.open = true;
            while self.next().is_some() {}
            return None;
        }
        Some(Raw::Message(self.fields(Some((place, bracket)), depth + 1)))
    }

    fn list(&mut self, depth: usize) -> Option<Raw> {
        let open = self.place();
        self.next();
        let mut items = Vec::new();
        loop {
            self.blank();
            let place = self.place();
            match self.peek() {
                Some(']') => {
                    self.next();
                    return Some(Raw::List(items));
                }
                Some(',') => {
                    self.next();
                }
                None => {
                    self.fault(open, "this '[' is never closed: the file ends before its ']'");
                    return Some(Raw::List(items));
                }
                Some(bracket @ ('{' | '<')) => items.extend(self.message(bracket, depth).map(|m| (place, m))),
                Some(_) => match self.scalar() {
                    Some(value) => items.push((place, value)),
                    // The rest of the line is gone; what follows is read as fields again.
                    None => return None,
                },
            }
        }
    }

    fn scalar(&mut self) -> Option<Raw> {
        let place = self.place();
        match self.peek() {
            Some('"' | '\'') => return self.texts(),
            Some(c) if c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_') => {}
            _ => {
                let found = self.here();
                self.fault(place, format!("expected a value, found {found}"));
                self.rest_of_line();
                return None;
            }
        }
        let mut written = String::new();
        if self.peek() == Some('-') {
            written.push('-');
            self.next();
            self.blank();
        }
        while let Some(c) = self.peek() {
            let sign_of_exponent = matches!(c, '+' | '-')
                && written.ends_with(['e', 'E'])
                && !written.trim_start_matches('-').starts_with("0x")
                && written.trim_start_matches('-').starts_with(|d: char| d.is_ascii_digit() || d == '.');
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') || sign_of_exponent {
                written.push(c);
                self.next();
            } else {
                break;
            }
        }
        let body = written.trim_start_matches('-');
        if body.is_empty() {
            let found = self.here();
            self.fault(place, format!("expected a number behind the sign, found {found}"));
            self.rest_of_line();
            return None;
        }
        let number = body.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        Some(if number { Raw::Number(written) } else { Raw::Word(written) })
    }

    /// One or more quoted texts behind each other: their concatenation.
    fn texts(&mut self) -> Option<Raw> {
        let start = self.place();
        let mut bytes: Vec<u8> = Vec::new();
        while let Some(quote @ ('"' | '\'')) = self.peek() {
            let open = self.place();
            self.next();
            loop {
                let at = self.place();
                match self.next() {
                    Some(c) if c == quote => break,
                    Some('\\') => match self.escape() {
                        Some(found) => bytes.extend(found),
                        None => self.fault(at, "an escape that text protobuf does not have"),
                    },
                    None | Some('\n') => {
                        self.fault(open, "this text is not closed on its line");
                        return None;
                    }
                    Some(c) => bytes.extend(c.to_string().as_bytes()),
                }
            }
            self.blank();
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(Raw::Text(text)),
            Err(_) => {
                self.fault(start, "the escapes of this text do not give UTF-8");
                None
            }
        }
    }

    fn escape(&mut self) -> Option<Vec<u8>> {
        let c = self.next()?;
        let plain = |b: u8| Some(vec![b]);
        match c {
            'a' => plain(7),
            'b' => plain(8),
            'f' => plain(12),
            'n' => plain(b'\n'),
            'r' => plain(b'\r'),
            't' => plain(b'\t'),
            'v' => plain(11),
            '?' | '\\' | '\'' | '"' => plain(c as u8),
            'x' | 'X' => {
                let code = self.digits(16, 2);
                u8::from_str_radix(&code, 16).ok().and_then(plain)
            }
            '0'..='7' => {
                let code = format!("{c}{}", self.digits(8, 2));
                u8::from_str_radix(&code, 8).ok().and_then(plain)
            }
            'u' | 'U' => {
                let length = if c == 'u' { 4 } else { 8 };
                let code = self.digits(16, length);
                let scalar = u32::from_str_radix(&code, 16).ok().filter(|_| code.len() == length)?;
                char::from_u32(scalar).map(|c| c.to_string().into_bytes())
            }
            _ => None,
        }
    }

    fn digits(&mut self, radix: u32, most: usize) -> String {
        let mut digits = String::new();
        while digits.len() < most {
            match self.peek().filter(|c| c.is_digit(radix)) {
                Some(c) => digits.push(c),
                None => break,
            }
            self.next();
        }
        digits
    }
}

/// The bracket that closes `open`.
fn closing(open: char) -> char {
    if open == '<' { '>' } else { '}' }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(text: &str) -> Vec<RawField> {
        let (fields, faults) = read(text);
        assert!(faults.is_empty(), "{faults:?}");
        fields
    }

    fn faults(text: &str) -> Vec<(usize, usize, String)> {
        let place = |f: &Fault| match f.place {
            Some(Place::Line { line, column }) => (line, column),
            _ => (0, 0),
        };
        read(text).1.iter().map(|f| (place(f).0, place(f).1, f.message.clone())).collect()
    }

    #[test]
    fn every_notation_of_a_value_is_read() {
        let fields =
            good("a: -1.5e-3f, b < c: 'x' \"\\x41\\n\" >; d: [1, 2]\ne { } # comment\nf: TRUE g: -inf h: 0x1F");
        let values: Vec<&Raw> = fields.iter().map(|f| &f.value).collect();
        assert_eq!(values[0], &Raw::Number("-1.5e-3f".into()));
        let Raw::Message(inner) = values[1] else { panic!("{:?}", values[1]) };
        assert_eq!(inner[0].value, Raw::Text("xA\n".into()));
        assert!(matches!(values[2], Raw::List(items) if items.len() == 2));
        assert_eq!(values[3], &Raw::Message(Vec::new()));
        assert_eq!(values[4], &Raw::Word("TRUE".into()));
        assert_eq!(values[5], &Raw::Word("-inf".into()));
        assert_eq!(values[6], &Raw::Number("0x1F".into()));
        assert_eq!(fields[6].place, Place::Line { line: 3, column: 17 });
    }

    #[test]
    fn all_faults_come_at_once_with_line_and_column() {
        let found = faults("a 5\nb: }\nc: \"open\n? 3\nd {\n  e: 1\n");
        let places: Vec<(usize, usize)> = found.iter().map(|(l, c, _)| (*l, *c)).collect();
        assert_eq!(places, [(1, 3), (2, 4), (3, 4), (4, 1), (5, 3)], "{found:?}");
        assert!(found[4].2.contains("never closed"), "{}", found[4].2);
    }

    #[test]
    fn nesting_is_bounded() {
        let found = faults(&"a { ".repeat(10_000));
        assert!(found.iter().any(|(_, _, m)| m.contains("deeper")), "{found:?}");
    }
}
