//! Protobuf's binary format, read under a schema, with the offset of every field.
//!
//! A message is a sequence of (key, value); a key is a varint of the field's number and the kind of its encoding: 0 varint,
//! 1 eight bytes, 2 length and bytes, 5 four bytes. (Encoding: protobuf.dev, "Encoding".)

use super::tree::{Fault, Field, Message, Place, Value};
use super::typed::{add, join};
use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

/// Reads a whole file.
pub fn read(desc: &MessageDescriptor, bytes: &[u8]) -> (Message, Vec<Fault>) {
    let mut faults = Vec::new();
    let mut reader = Reader { bytes, at: 0, end: bytes.len(), faults: &mut faults };
    let message = reader.message(desc, "", 0);
    (message, faults)
}

/// Deepest nesting of messages: the schemas need five levels.
const MAX_DEPTH: usize = 16;
/// Most faults noted.
const MAX_FAULTS: usize = 200;

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    end: usize,
    faults: &'b mut Vec<Fault>,
}

/// A value before the schema says what it must be.
enum Encoded {
    Varint(u64),
    Eight,
    Bytes(usize, usize),
    Four([u8; 4]),
}

impl Encoded {
    fn name(&self) -> &'static str {
        match self {
            Self::Varint(_) => "a varint",
            Self::Eight => "eight bytes",
            Self::Bytes(..) => "a length and bytes",
            Self::Four(_) => "four bytes",
        }
    }
}

impl Reader<'_> {
    fn fault(&mut self, at: usize, path: &str, message: impl Into<String>) {
        if self.faults.len() < MAX_FAULTS {
            self.faults.push(Fault::at(Place::Byte(at), path, message));
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at).filter(|_| self.at < self.end)?;
        self.at += 1;
        Some(byte)
    }

    /// A varint; none where the bytes end or it is longer than ten.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits.checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn four(&mut self) -> Option<[u8; 4]> {
        let end = self.at.checked_add(4).filter(|e| *e <= self.end)?;
        let four = self.bytes.get(self.at..end)?.try_into().ok()?;
        self.at = end;
        Some(four)
    }

    /// One value by its encoding; none (and a fault) where it cannot be read.
    fn encoded(&mut self, encoding: u64, start: usize, path: &str) -> Option<Encoded> {
        let read = match encoding {
            0 => self.varint().map(Encoded::Varint),
            1 => self.four().and_then(|_| self.four()).map(|_| Encoded::Eight),
            5 => self.four().map(Encoded::Four),
            2 => {
                let length = self.varint();
                let from = self.at;
                let to = length.and_then(|n| usize::try_from(n).ok()).and_then(|n| from.checked_add(n));
                match (length, to) {
                    (Some(length), None) => {
                        self.fault(start, path, format!("says it is {length} bytes long, which no file is"));
                        return None;
                    }
                    (Some(length), Some(to)) if to > self.end => {
                        let left = self.end - from;
                        let text = format!("is {length} bytes long, but only {left} are left: the file is truncated");
                        self.fault(start, path, text);
                        return None;
                    }
                    (Some(_), Some(to)) => {
                        self.at = to;
                        Some(Encoded::Bytes(from, to))
                    }
                    (None, _) => None,
                }
            }
            3 | 4 => {
                self.fault(start, path, "groups (encodings 3 and 4) are not part of these files");
                return None;
            }
            other => {
                self.fault(start, path, format!("there is no encoding {other}: this is no protobuf, or it is damaged"));
                return None;
            }
        };
        if read.is_none() {
            self.fault(
                start,
                path,
                "the value is cut off or longer than its encoding allows: the file is truncated or damaged",
            );
        }
        read
    }

    fn message(&mut self, desc: &MessageDescriptor, path: &str, depth: usize) -> Message {
        let mut out = Message { desc: desc.clone(), fields: Vec::new() };
        while self.at < self.end && self.faults.len() < MAX_FAULTS {
            let start = self.at;
            let Some(key) = self.varint() else {
                self.fault(start, path, "the key of a field is cut off: the file is truncated or damaged");
                self.at = self.end;
                break;
            };
            let number = u32::try_from(key >> 3).unwrap_or(u32::MAX);
            let known = desc.get_field(number);
            let here = match &known {
                Some(field) => join(path, field.name()),
                None => join(path, &format!("field {number}")),
            };
            let Some(encoded) = self.encoded(key & 7, start, &here) else {
                // Where one value ends the next begins, so nothing behind it can be read.
                self.at = self.end;
                break;
            };
            match known {
                Some(field) => {
                    if let Some(value) = self.value(&field, &encoded, &here, start, depth) {
                        let field = Field::new(field, Place::Byte(start), value);
                        add(&mut out, field, path, self.faults);
                    }
                }
                None => {
                    let text = format!("unknown field number {number} ({})", encoded.name());
                    self.faults.push(Fault::unknown(Place::Byte(start), path, text, 1));
                }
            }
        }
        out
    }

    fn value(
        &mut self,
        desc: &FieldDescriptor,
        encoded: &Encoded,
        path: &str,
        start: usize,
        depth: usize,
    ) -> Option<Value> {
        match (desc.kind(), encoded) {
            (Kind::Message(_), Encoded::Bytes(..)) if depth >= MAX_DEPTH => {
                self.fault(start, path, format!("nested deeper than {MAX_DEPTH} levels"));
                None
            }
            (Kind::Message(inner), Encoded::Bytes(from, to)) => {
                let mut part = Reader { bytes: self.bytes, at: *from, end: *to, faults: self.faults };
                Some(Value::Message(part.message(&inner, path, depth + 1)))
            }
            (Kind::String, Encoded::Bytes(from, to)) => match self.bytes.get(*from..*to).map(std::str::from_utf8) {
                Some(Ok(text)) => Some(Value::Text(text.to_string())),
                _ => {
                    self.fault(start, path, "this text is not UTF-8");
                    None
                }
            },
            (Kind::Float, Encoded::Four(four)) => {
                let x = f32::from_le_bytes(*four);
                if x.is_finite() {
                    return Some(Value::Float(x));
                }
                self.fault(start, path, format!("expected a finite number, found {x}"));
                None
            }
            (Kind::Bool, Encoded::Varint(n @ (0 | 1))) => Some(Value::Bool(*n == 1)),
            (Kind::Bool, Encoded::Varint(n)) => {
                self.fault(start, path, format!("expected yes or no (1 or 0), found {n}"));
                None
            }
            (Kind::Enum(words), Encoded::Varint(n)) => {
                // Negative numbers are written as their 64-bit complement.
                match i32::try_from(*n as i64).ok().filter(|n| words.get_value(*n).is_some()) {
                    Some(n) => Some(Value::Enum(n)),
                    None => {
                        let words = super::typed::enum_words(&words);
                        self.fault(start, path, format!("{} is the number of none of {words}", *n as i64));
                        None
                    }
                }
            }
            (Kind::Int64, Encoded::Varint(n)) => Some(Value::Int(*n as i64)),
            (kind, encoded) => {
                let due = match kind {
                    Kind::Message(_) | Kind::String => "a length and bytes",
                    Kind::Float => "four bytes",
                    _ => "a varint",
                };
                self.fault(
                    start,
                    path,
                    format!("expected {due}, found {}: another generation, or damaged", encoded.name()),
                );
                None
            }
        }
    }
}
