//! Opening a trace: plain or gzip, told apart by content.

use super::error::TraceError;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

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
    if let Some(kind) = archive(&head) {
        return Err(TraceError::new(path, format!("this is {kind}: unpack it and name the trace inside")));
    }
    if let Some((_, kind)) = OTHERS.iter().find(|(begins, _)| head.starts_with(begins)) {
        let wanted =
            "a trace is JSON of torch.profiler or of an ExecutionTraceObserver, a graph of torch.fx, or Chakra's .et";
        return Err(TraceError::new(path, format!("this is {kind}, which is no trace: {wanted}")));
    }
    Ok(Box::new(io::Cursor::new(head).chain(source)))
}

/// Bytes by which archives are told: a tar's first member has its magic number at 257.
const HEAD: usize = 262;

/// How packed files begin.
const PACKED: [(&[u8], &str); 6] = [
    (b"PK\x03\x04", "a zip archive"),
    (b"\x28\xb5\x2f\xfd", "packed with zstd"),
    (b"\xfd7zXZ\0", "packed with xz"),
    (b"BZh", "packed with bzip2"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x04\x22\x4d\x18", "packed with lz4"),
];

/// How other files begin that lie beside traces. No message of a Chakra trace does.
const OTHERS: [(&[u8], &str); 7] = [
    (b"\x89PNG\r\n", "a picture (PNG)"),
    (b"\xff\xd8\xff", "a picture (JPEG)"),
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "a program (ELF)"),
    (b"SQLite format 3\0", "an SQLite database (Nsight Systems exports such)"),
    (b"\x89HDF\r\n", "an HDF5 file"),
    (b"PAR1", "a Parquet table"),
];

fn archive(head: &[u8]) -> Option<&'static str> {
    if head.get(257..HEAD) == Some(b"ustar".as_slice()) {
        return Some("a tar archive");
    }
    PACKED.iter().find(|(begins, _)| head.starts_with(begins)).map(|(_, kind)| *kind)
}

/// Python's pickles from protocol 2 on; no message of a Chakra trace has such a field first.
fn is_pickle(head: &[u8]) -> bool {
    matches!(head, [0x80, 4 | 5, 0x95, ..] | [0x80, 2 | 3, b'}' | b']' | b'(' | b'c', ..])
}

/// Bytes unpacked at once, of which two pieces may wait.
const BLOCK: u64 = 1 << 18;

/// The next bytes of a source, and whether there may be more of it.
type Block = (Vec<u8>, io::Result<bool>);

fn block(source: &mut impl Read) -> Block {
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    let read = source.take(BLOCK).read_to_end(&mut bytes);
    (bytes, read.map(|n| n as u64 == BLOCK))
}

/// What a thread of its own reads, a little ahead of whoever wants it.
struct Ahead {
    bytes: io::Cursor<Vec<u8>>,
    more: io::Result<bool>,
    blocks: Receiver<Block>,
}

impl Read for Ahead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.bytes.read(out)?;
            if n > 0 || out.is_empty() {
                return Ok(n);
            }
            match &self.more {
                Ok(true) => {}
                Ok(false) => return Ok(0),
                // It is as wrong when it is asked for again.
                Err(e) => return Err(io::Error::new(e.kind(), e.to_string())),
            }
            let (bytes, more) =
                self.blocks.recv().map_err(|_| io::Error::other("the thread that unpacks has ended"))?;
            (self.bytes, self.more) = (io::Cursor::new(bytes), more);
        }
    }
}

/// Reads a source that takes work (unpacking) beside its reader; a short one is read at once.
fn ahead(mut source: impl Read + Send + 'static) -> io::Result<Bytes> {
    let (bytes, more) = block(&mut source);
    let (send, blocks) = sync_channel(2);
    if matches!(more, Ok(true)) {
        std::thread::Builder::new().spawn(move || {
            loop {
                let next = block(&mut source);
                let last = !matches!(next.1, Ok(true));
                // Whoever wanted it may have gone.
                if send.send(next).is_err() || last {
                    break;
                }
            }
        })?;
    }
    Ok(Box::new(Ahead { bytes: io::Cursor::new(bytes), more, blocks }))
}

/// Unpacks gzip; other bytes pass through.
///
/// # Errors
/// When the first bytes cannot be read.
pub fn unpack(mut source: impl Read + Send + 'static) -> io::Result<Bytes> {
    let mut head = Vec::with_capacity(GZIP.len());
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;
    let whole = io::Cursor::new(head.clone()).chain(source);
    if head == GZIP {
        ahead(MultiGzDecoder::new(io::BufReader::with_capacity(1 << 16, whole)))
    } else {
        Ok(Box::new(whole))
    }
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
        assert_eq!(archive(b"BZh91AY&SY"), Some("packed with bzip2"));
        assert_eq!(archive(b"{\"traceEvents\": []}"), None);
        assert_eq!(archive(&[]), None);
        // pickle.dumps({}, 4) and (…, 2); a Chakra trace whose first message has 512 bytes.
        assert!(is_pickle(b"\x80\x04\x95\x02\0\0\0\0\0\0\0}\x94.") && is_pickle(b"\x80\x02}q\x00."));
        assert!(!is_pickle(b"\x80\x04\x0a\x05"));
    }

    #[test]
    fn what_lies_beside_traces_is_named() {
        let file = std::env::temp_dir().join(format!("flowspace-input-{}", std::process::id()));
        let says = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            open(&file).err().map(|e| e.to_string())
        };
        let picture = says(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
        assert!(picture.contains("this is a picture (PNG), which is no trace: a trace is JSON"), "{picture}");
        assert!(says(b"SQLite format 3\0\x10\0").unwrap().contains("Nsight Systems"));
        assert_eq!(says(b"{\"traceEvents\": []}"), None);
        std::fs::remove_file(&file).unwrap();
    }

    #[test]
    fn plain_and_packed_give_the_same_bytes() {
        let long: Vec<u8> = (0..3 * BLOCK as u32 + 5).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let whole = &long[..BLOCK as usize];
        for text in [&b""[..], b"{", b"{\"nodes\": []}", &long, whole] {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(text).unwrap();
            let packed = packed.finish().unwrap();
            for source in [text.to_vec(), packed.clone()] {
                let mut out = Vec::new();
                unpack(io::Cursor::new(source)).unwrap().read_to_end(&mut out).unwrap();
                assert!(out == text);
            }
            // Cut off: an error behind the bytes that are there.
            let mut cut = unpack(io::Cursor::new(packed[..packed.len() - 4].to_vec())).unwrap();
            let mut out = Vec::new();
            assert!(cut.read_to_end(&mut out).is_err());
            assert!(text.starts_with(&out));
        }
    }

    #[test]
    fn who_goes_early_leaves_no_thread_waiting() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&vec![b' '; 8 * BLOCK as usize]).unwrap();
        let mut source = unpack(io::Cursor::new(packed.finish().unwrap())).unwrap();
        let mut one = [0];
        assert_eq!(source.read(&mut one).unwrap(), 1);
    }
}
