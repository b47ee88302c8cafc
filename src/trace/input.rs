//! Opening a trace: plain or gzip, told apart by content.

use super::error::TraceError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// A file's bytes, uncompressed.
pub type Bytes = Box<dyn Read + Send>;

/// Opens a trace file; gzip is unpacked on the way.
///
/// # Errors
/// [`TraceError`] when the file cannot be opened or read.
pub fn open(path: &Path) -> Result<Bytes, TraceError> {
    let fault = |e: io::Error| TraceError::io(path, &e);
    // Looked at before it is opened: opening a pipe waits for its writer, and a device may have no end.
    let kind = std::fs::metadata(path).map_err(fault)?;
    if kind.is_dir() {
        return Err(TraceError::new(
            path,
            "this is a folder; a trace file is expected (`flowspace trace check` and `trace convert` take the folder of a run)",
        ));
    }
    if !kind.is_file() {
        let what = "this is a pipe or a device; a trace is read more than once, so that a file is expected: write it to one first";
        return Err(TraceError::new(path, what));
    }
    let mut source = unpack(File::open(path).map_err(fault)?).map_err(fault)?;
    // Only what is looked at is read before it is known to be no archive.
    let mut head = Vec::with_capacity(HEAD);
    let cut = |e: io::Error| TraceError::new(path, format!("cannot be read: {e}"));
    source.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(cut)?;
    if is_pickle(&head) {
        return Err(TraceError::new(
            path,
            "this is a Python pickle (torch.cuda.memory writes its snapshots so), which is no trace of operators: record one with torch.profiler",
        ));
    }
    match archive(&head) {
        Some(kind) => Err(TraceError::new(path, format!("this is {kind}: unpack it and name the trace inside"))),
        None => Ok(Box::new(io::Cursor::new(head).chain(source))),
    }
}

/// Bytes by which archives are told: a tar's first member has its magic number at 257.
const HEAD: usize = 262;

fn archive(head: &[u8]) -> Option<&'static str> {
    if head.get(257..HEAD) == Some(b"ustar".as_slice()) {
        Some("a tar archive")
    } else if head.starts_with(b"PK\x03\x04") {
        Some("a zip archive")
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Some("packed with zstd")
    } else if head.starts_with(&[0xfd, b'7', b'z', b'X', b'Z', 0]) {
        Some("packed with xz")
    } else {
        None
    }
}

/// Python's pickles from protocol 2 on; no message of a Chakra trace has such a field first.
fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 4 | 5, 0x95, ..] | [0x80, 2 | 3, b'}' | b']' | b'(' | b'c', ..])
}

/// Unpacks gzip; other bytes pass through.
///
/// # Errors
/// When the first bytes cannot be read.
pub fn unpack(mut source: impl Read + Send + 'static) -> io::Result<Bytes> {
    let mut head = Vec::with_capacity(GZIP.len());
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
    let whole = io::Cursor::new(head.clone()).chain(source);
    Ok(if head == GZIP {
        Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, whole)))
    } else {
        Box::new(whole)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write as _;

    #[test]
    fn archives_are_told() {
        let mut tar = vec![b'x'; 257];
        tar.extend(b"ustar\0");
        assert_eq!(archive(&tar), Some("a tar archive"));
        assert_eq!(archive(b"PK\x03\x04rest"), Some("a zip archive"));
        assert_eq!(archive(b"{\"traceEvents\": []}"), None);
        assert_eq!(archive(&[]), None);
        // pickle.dumps({}, 4) and (…, 2); a Chakra trace whose first message has 512 bytes.
        assert!(is_pickle(b"\x80\x04\x95\x02\0\0\0\0\0\0\0}\x94.") && is_pickle(b"\x80\x02}q\x00."));
        assert!(!is_pickle(b"\x80\x04\x0a\x05"));
    }

    #[test]
    fn plain_and_packed_give_the_same_bytes() {
        for text in [&b""[..], b"{", b"{\"nodes\": []}"] {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(text).unwrap();
            for source in [text.to_vec(), packed.finish().unwrap()] {
                let mut out = Vec::new();
                unpack(io::Cursor::new(source)).unwrap().read_to_end(&mut out).unwrap();
                assert_eq!(out, text);
            }
        }
    }
}
