//! Cutting a long JSON text into pieces without holding it: keys of the outer object, elements of an array, each handed on as bytes to
//! serde. Scanning is a loop over bytes, so that depth cannot exhaust the stack.

use std::io::Read;

/// A piece longer than this is refused: no node of a trace is so large, and memory must stay bounded.
const LONGEST_PIECE: usize = 1 << 30;
/// Bytes read at once.
const CHUNK: usize = 1 << 17;

/// What is wrong with a text, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonFault {
    /// Byte of the uncompressed text.
    pub byte: u64,
    /// What was found.
    pub message: String,
}

/// Cuts a JSON text into pieces.
pub(crate) struct Cutter<R> {
    reader: R,
    /// What is held of the text stands in its first `held` bytes; those behind are room.
    room: Vec<u8>,
    held: usize,
    at: usize,
    /// Bytes of the text before what is held.
    before: u64,
    ended: bool,
    /// Why reading ahead stopped: said when what was held is used up.
    stopped: Option<JsonFault>,
}

impl<R: Read> Cutter<R> {
    /// Over a text.
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, room: Vec::new(), held: 0, at: 0, before: 0, ended: false, stopped: None }
    }

    /// Byte of the text that is read next.
    pub(crate) fn byte(&self) -> u64 {
        self.before + self.at as u64
    }

    /// A fault at the present byte.
    pub(crate) fn fault(&self, message: impl Into<String>) -> JsonFault {
        JsonFault { byte: self.byte(), message: message.into() }
    }

    /// What is held of the text.
    #[inline]
    fn text(&self) -> &[u8] {
        self.room.get(..self.held).unwrap_or_default()
    }

    /// Reads on; `false` at the end of the text.
    fn fill(&mut self) -> Result<bool, JsonFault> {
        if let Some(fault) = self.stopped.take() {
            return Err(fault);
        }
        if self.ended {
            return Ok(false);
        }
        if self.at > 0 {
            self.room.copy_within(self.at..self.held, 0);
            self.before += self.at as u64;
            self.held -= self.at;
            self.at = 0;
        }
        if self.held > LONGEST_PIECE {
            return Err(self.fault("this piece of the text is longer than 1 GiB"));
        }
        // Growing with what is held keeps the number of copies of a long piece logarithmic.
        let wanted = self.held + CHUNK.max(self.held);
        if self.room.len() < self.held + CHUNK {
            self.room.resize(wanted, 0);
        }
        let read = loop {
            match self.reader.read(self.room.get_mut(self.held..).unwrap_or_default()) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        match read {
            Ok(n) => {
                self.held += n;
                self.ended = n == 0;
                Ok(n > 0)
            }
            Err(e) => {
                let byte = self.before + self.held as u64;
                Err(JsonFault { byte, message: format!("cannot be read any further: {e}") })
            }
        }
    }

    /// The next byte that is not blank, not consumed.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>, JsonFault> {
        loop {
            while let Some(&b) = self.text().get(self.at) {
                if !b.is_ascii_whitespace() {
                    return Ok(Some(b));
                }
                self.at += 1;
            }
            if !self.fill()? {
                return Ok(None);
            }
        }
    }

    /// Consumes one expected byte.
    pub(crate) fn expect(&mut self, wanted: u8, what: &str) -> Result<(), JsonFault> {
        match self.peek()? {
            Some(b) if b == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(b) => Err(self.fault(format!("expected {what}, found `{}`", (b as char).escape_default()))),
            None => Err(self.fault(format!("expected {what}, but the file ends here"))),
        }
    }

    /// The text from the present byte on, at least so many bytes of it where there are as many; it may end anywhere.
    pub(crate) fn ahead(&mut self, least: usize) -> &[u8] {
        while self.held - self.at < least && self.stopped.is_none() {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => self.stopped = Some(fault),
            }
        }
        self.text().get(self.at..).unwrap_or_default()
    }

    /// Goes on behind bytes of [`Self::ahead`] that were looked at.
    pub(crate) fn advance(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.held);
    }

    /// One whole value: its byte and its text.
    pub(crate) fn value(&mut self) -> Result<(u64, &[u8]), JsonFault> {
        let first = match self.peek()? {
            Some(b) => b,
            None => return Err(self.fault("expected a value, but the file ends here")),
        };
        let mut length = 0usize; // of the value, from self.at
        let mut depth = 0usize;
        let mut in_string = false;
        'scan: loop {
            let bytes = self.text().get(self.at..).unwrap_or_default();
            while let Some(&b) = bytes.get(length) {
                length += 1;
                if in_string {
                    match b {
                        b'"' => {
                            in_string = false;
                            if depth == 0 {
                                break 'scan;
                            }
                        }
                        b'\\' => {
                            if length >= bytes.len() {
                                length -= 1; // look again when the escaped byte is here
                                break;
                            }
                            length += 1;
                        }
                        _ => {}
                    }
                    continue;
                }
                match b {
                    b'"' => in_string = true,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => {
                        if depth == 0 {
                            length -= 1;
                            break 'scan; // the end of what the value stands in
                        }
                        depth -= 1;
                        if depth == 0 {
                            break 'scan;
                        }
                    }
                    b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => {
                        length -= 1;
                        break 'scan;
                    }
                    _ => {}
                }
            }
            if !self.fill()? {
                if depth == 0 && !in_string && !matches!(first, b'{' | b'[' | b'"') {
                    break;
                }
                return Err(JsonFault {
                    byte: self.before + self.held as u64,
                    message: format!("the file ends inside the value that begins at byte {}", self.byte()),
                });
            }
        }
        if length == 0 {
            return Err(self.fault(format!("expected a value, found `{}`", (first as char).escape_default())));
        }
        let byte = self.byte();
        let start = self.at;
        self.at += length;
        Ok((byte, self.text().get(start..start + length).unwrap_or_default()))
    }

    /// Enters an object.
    pub(crate) fn enter_object(&mut self) -> Result<(), JsonFault> {
        self.expect(b'{', "an object (`{`)")
    }

    /// Enters an array.
    pub(crate) fn enter_array(&mut self) -> Result<(), JsonFault> {
        self.expect(b'[', "a list (`[`)")
    }

    /// The next key of the object entered; `first` until one was read. `None` at its end, which is consumed.
    pub(crate) fn key(&mut self, first: bool) -> Result<Option<String>, JsonFault> {
        if !self.more(first, b'}')? {
            return Ok(None);
        }
        let (byte, text) = self.value()?;
        let key = serde_json::from_slice::<String>(text)
            .map_err(|e| JsonFault { byte, message: format!("expected a key in quotes: {e}") })?;
        self.expect(b':', "`:` after a key")?;
        Ok(Some(key))
    }

    /// Whether the array or object entered has another item; its end is consumed.
    pub(crate) fn more(&mut self, first: bool, end: u8) -> Result<bool, JsonFault> {
        match self.peek()? {
            Some(b) if b == end => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if !first => self.at += 1,
            Some(_) if first => {}
            Some(b) => {
                return Err(self.fault(format!(
                    "expected `,` or `{}`, found `{}`",
                    end as char,
                    (b as char).escape_default()
                )));
            }
            None => return Err(self.fault(format!("expected `{}`, but the file ends here", end as char))),
        }
        Ok(true)
    }

    /// The next element of the array entered.
    pub(crate) fn element(&mut self, first: bool) -> Result<Option<(u64, &[u8])>, JsonFault> {
        if !self.more(first, b']')? {
            return Ok(None);
        }
        self.value().map(Some)
    }

    /// Nothing but blanks may follow.
    pub(crate) fn end(&mut self) -> Result<(), JsonFault> {
        match self.peek()? {
            None => Ok(()),
            Some(b) => {
                Err(self.fault(format!("expected the end of the file, found `{}`", (b as char).escape_default())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One byte at a time: every place where a buffer may end.
    struct Dribble<'a>(&'a [u8]);
    impl Read for Dribble<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let n = self.0.len().min(1).min(out.len());
            out[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn elements(text: &str) -> Result<Vec<(u64, String)>, JsonFault> {
        let mut cutter = Cutter::new(Dribble(text.as_bytes()));
        cutter.enter_object()?;
        let mut found = Vec::new();
        let mut first = true;
        while let Some(key) = cutter.key(first)? {
            first = false;
            if key != "nodes" {
                cutter.value()?;
                continue;
            }
            cutter.enter_array()?;
            while let Some((byte, text)) = cutter.element(found.is_empty())? {
                found.push((byte, String::from_utf8(text.to_vec()).unwrap()));
            }
        }
        cutter.end()?;
        Ok(found)
    }

    #[test]
    fn elements_with_brackets_in_strings() {
        let text = r#"{"a": "]}\"", "nodes": [{"x": "}\\"}, [1, [2]], 3, "s\"", null ], "z": {}} "#;
        let found = elements(text).unwrap();
        let texts: Vec<&str> = found.iter().map(|(_, t)| t.as_str()).collect();
        assert_eq!(texts, [r#"{"x": "}\\"}"#, "[1, [2]]", "3", r#""s\"""#, "null"]);
        for (byte, t) in &found {
            assert!(text[*byte as usize..].starts_with(t.as_str()));
        }
    }

    #[test]
    fn faults_name_the_byte() {
        let fault = elements(r#"{"nodes": [1, {"a": 2"#).unwrap_err();
        assert_eq!(fault.byte, 21);
        assert!(fault.message.contains("byte 14"), "{}", fault.message);
        assert!(elements("").unwrap_err().message.contains("file ends"));
        assert!(elements("{\"nodes\": [1 2]}").unwrap_err().message.contains("expected `,` or `]`"));
        assert!(elements("{\"nodes\": [,]}").is_err());
        assert!(elements("{} x").unwrap_err().message.contains("end of the file"));
        let deep = "[".repeat(100_000);
        assert!(elements(&format!("{{\"nodes\": [{deep}")).is_err());
    }
}
