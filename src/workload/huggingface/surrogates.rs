//! JSON writes a character beyond the first 65,536 as two escapes (`\ud83d\ude00`), which YAML does not know.

/// The text with each such pair as its character, which takes no line more or less; `None` where there is none.
pub(super) fn joined(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = if let Some(character) = pair(rest) {
            found = true;
            out.push(character);
            PAIR
        } else {
            // What is escaped goes with its backslash: two of them are none that begins an escape.
            let taken = rest.char_indices().nth(2).map_or(rest.len(), |(end, _)| end);
            out.push_str(&rest[..taken]);
            taken
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    found.then_some(out)
}

/// Bytes of two escapes.
const PAIR: usize = 12;

/// The character that two escapes at the beginning of a text are.
fn pair(text: &str) -> Option<char> {
    let units = [unit(text)?, unit(text.get(PAIR / 2..)?)?];
    let character = char::decode_utf16(units).next()?.ok()?;
    (u32::from(character) > u32::from(u16::MAX)).then_some(character)
}

/// The number of an escape at the beginning of a text.
fn unit(text: &str) -> Option<u16> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) { u16::from_str_radix(digits, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn pairs_become_characters() {
        assert_eq!(joined("{\"x\": \"a\\ud83d\\ude00b\"}").as_deref(), Some("{\"x\": \"a\u{1f600}b\"}"));
        for alone in ["\\\\ud83d\\\\ude00", "\\u00e9\\u00e8", "\\ud83d", "\\", "none", "\\ud83d\\u0041", "\\é"] {
            assert_eq!(joined(alone), None, "{alone}");
        }
    }
}
