//! The wire format of protocol buffers: varints, tags, lengths. Reader and writer call these millions of times: they are inlined across modules.

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Eight,
    Length,
    Four,
}

/// What is wrong, at which byte of the message, and in which field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WireFault {
    pub(super) at: usize,
    pub(super) field: &'static str,
    pub(super) message: String,
}

/// A message being read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Where the bytes stand in the outermost message.
    base: usize,
}

/// A field as it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field<'a> {
    pub(super) number: u32,
    pub(super) wire: WireType,
    /// Varint, eight or four bytes as a number.
    pub(super) number_value: u64,
    /// Contents of a length-delimited field.
    pub(super) contents: Message<'a>,
    /// The field with its tag.
    pub(super) whole: &'a [u8],
    /// Where it begins in the outermost message.
    pub(super) at: usize,
}

impl<'a> Message<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, base: 0 }
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub(super) fn at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Byte of the outermost message that is read next.
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.base + self.at
    }

    fn fault(&self, message: impl Into<String>) -> WireFault {
        WireFault { at: self.place(), field: "", message: message.into() }
    }

    /// A base-128 number, if one stands here.
    #[inline]
    pub(super) fn number(&mut self) -> Option<u64> {
        let rest = self.bytes.get(self.at..)?;
        let (&first, more) = rest.split_first()?;
        // Most numbers are tags, lengths and flags of one byte.
        let mut value = u64::from(first);
        let mut length = 1;
        if first >= 0x80 {
            value &= 0x7f;
            loop {
                let b = *more.get(length - 1)?;
                // The tenth byte has the last bit of 64.
                if length == 9 && b > 1 {
                    return None;
                }
                value |= u64::from(b & 0x7f) << (7 * length);
                length += 1;
                if b < 0x80 {
                    break;
                }
            }
        }
        self.at += length;
        Some(value)
    }

    /// A base-128 number.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, WireFault> {
        self.number().ok_or_else(|| self.no_number())
    }

    /// Why no number stands here.
    #[cold]
    fn no_number(&self) -> WireFault {
        let left = self.bytes.len().saturating_sub(self.at);
        self.fault(if left < 10 { "the message ends inside a number" } else { "a number of more than 64 bits" })
    }

    /// Four or eight bytes, little-endian.
    pub(super) fn fixed(&mut self, width: usize) -> Result<u64, WireFault> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().rev().fold(0, |value, &b| value << 8 | u64::from(b)))
    }

    /// The contents of a length-delimited field behind its tag, if they are all here.
    #[inline]
    pub(super) fn contents(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let bytes = self.bytes.get(self.at..)?.get(..length)?;
        self.at += length;
        Some(bytes)
    }

    /// The contents of a length-delimited field behind its tag.
    #[inline]
    pub(super) fn delimited(&mut self) -> Result<&'a [u8], WireFault> {
        let length = self.varint()?;
        let length = usize::try_from(length).map_err(|_| self.fault("a length beyond any memory"))?;
        self.take(length)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], WireFault> {
        let found = self.at.checked_add(length).and_then(|end| self.bytes.get(self.at..end));
        match found {
            Some(bytes) => {
                self.at += length;
                Ok(bytes)
            }
            None => Err(self.short(length)),
        }
    }

    #[cold]
    fn short(&self, length: usize) -> WireFault {
        let left = self.bytes.len().saturating_sub(self.at);
        self.fault(format!("{length} bytes are announced, but {left} are left in the message"))
    }

    /// The next field.
    #[inline]
    pub(super) fn field(&mut self) -> Result<Field<'a>, WireFault> {
        let start = self.at;
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).ok().filter(|&n| n > 0 && n < 1 << 29);
        let number = number.ok_or_else(|| WireFault {
            at: self.base + start,
            field: "",
            message: format!("field number {} is not possible", tag >> 3),
        })?;
        let mut contents = Message { bytes: &[], at: 0, base: self.place() };
        let mut number_value = 0;
        let wire = match tag & 7 {
            0 => {
                number_value = self.varint()?;
                WireType::Varint
            }
            1 => {
                number_value = self.fixed(8)?;
                WireType::Eight
            }
            2 => {
                contents.bytes = self.delimited()?;
                contents.base = self.place() - contents.bytes.len();
                WireType::Length
            }
            5 => {
                number_value = self.fixed(4)?;
                WireType::Four
            }
            other => {
                return Err(WireFault {
                    at: self.base + start,
                    field: "",
                    message: format!("wire type {other} is not possible here"),
                });
            }
        };
        let whole = self.bytes.get(start..self.at).unwrap_or_default();
        Ok(Field { number, wire, number_value, contents, whole, at: self.base + start })
    }
}

impl<'a> Field<'a> {
    /// A fault of this field.
    pub(super) fn fault(&self, field: &'static str, message: impl Into<String>) -> WireFault {
        WireFault { at: self.at, field, message: message.into() }
    }

    fn expected(&self, field: &'static str, what: &str) -> WireFault {
        let found = match self.wire {
            WireType::Varint => "a varint",
            WireType::Eight => "eight bytes",
            WireType::Length => "a string or message",
            WireType::Four => "four bytes",
        };
        self.fault(field, format!("expected {what}, found {found} (field {})", self.number))
    }

    /// As a varint.
    #[inline]
    pub(super) fn varint(&self, field: &'static str) -> Result<u64, WireFault> {
        if self.wire == WireType::Varint { Ok(self.number_value) } else { Err(self.expected(field, "a varint")) }
    }

    /// As a message or bytes.
    #[inline]
    pub(super) fn message(&self, field: &'static str) -> Result<Message<'a>, WireFault> {
        if self.wire == WireType::Length { Ok(self.contents) } else { Err(self.expected(field, "a string or message")) }
    }

    /// As a string.
    #[inline]
    pub(super) fn text(&self, field: &'static str) -> Result<&'a str, WireFault> {
        let bytes = self.message(field)?.bytes;
        std::str::from_utf8(bytes).map_err(|e| WireFault {
            at: self.contents.base + e.valid_up_to(),
            field,
            message: "this is not UTF-8".into(),
        })
    }

    /// Appends numbers of a repeated field, packed or not.
    pub(super) fn numbers(&self, field: &'static str, out: &mut Vec<u64>) -> Result<(), WireFault> {
        if self.wire == WireType::Varint {
            out.push(self.number_value);
            return Ok(());
        }
        let mut packed = self.message(field)?;
        while !packed.at_end() {
            out.push(packed.varint().map_err(|f| WireFault { field, ..f })?);
        }
        Ok(())
    }
}

/// Appends a varint.
#[inline]
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a tag.
#[inline]
pub(super) fn put_tag(out: &mut Vec<u8>, field: u32, wire: WireType) {
    let wire = match wire {
        WireType::Varint => 0,
        WireType::Eight => 1,
        WireType::Length => 2,
        WireType::Four => 5,
    };
    put_varint(out, u64::from(field) << 3 | wire);
}

/// Appends a number unless it is 0.
#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, field: u32, value: u64) {
    if value != 0 {
        put_tag(out, field, WireType::Varint);
        put_varint(out, value);
    }
}

/// Appends bytes, empty ones too.
#[inline]
pub(super) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_tag(out, field, WireType::Length);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a string unless it is empty.
#[inline]
pub(super) fn put_text(out: &mut Vec<u8>, field: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, field, text.as_bytes());
    }
}

/// Appends packed numbers unless there are none.
pub(super) fn put_numbers(out: &mut Vec<u8>, field: u32, values: &[u64], scratch: &mut Vec<u8>) {
    if !values.is_empty() {
        scratch.clear();
        for &value in values {
            put_varint(scratch, value);
        }
        put_bytes(out, field, scratch);
    }
}
