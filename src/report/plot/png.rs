//! A PNG file of 8-bit RGB pixels: signature, header, density, one compressed picture. (Crates that decode and encode every kind of
//! picture take longer to compile than all other parts of the figures.)

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use std::io::{self, Write as _};

/// The file of a picture of `width` x `height` pixels, by rows from the top.
pub(super) fn encode(rgb: &[u8], (width, height): (u32, u32), per_inch: f64) -> io::Result<Vec<u8>> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = [width.to_be_bytes(), height.to_be_bytes()].concat();
    // Eight bits a channel, RGB, deflate, filters by row, not interlaced.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut png, b"IHDR", &header);
    let per_metre = ((per_inch / 0.0254).round() as u32).to_be_bytes();
    chunk(&mut png, b"pHYs", &[&per_metre[..], &per_metre, &[1]].concat());
    let mut rows = ZlibEncoder::new(Vec::new(), Compression::default());
    let row = width as usize * 3;
    for (y, line) in rgb.chunks(row).enumerate() {
        // Filter 2: what differs from the row above, which in a figure is little.
        rows.write_all(&[2])?;
        let above = y.checked_sub(1).map(|y| &rgb[y * row..]);
        let differences: Vec<u8> =
            line.iter().enumerate().map(|(x, byte)| byte.wrapping_sub(above.map_or(0, |a| a[x]))).collect();
        rows.write_all(&differences)?;
    }
    chunk(&mut png, b"IDAT", &rows.finish()?);
    chunk(&mut png, b"IEND", &[]);
    Ok(png)
}

/// Length, name, body, checksum of name and body.
fn chunk(out: &mut Vec<u8>, name: &[u8; 4], body: &[u8]) {
    let mut crc = Crc::new();
    crc.update(name);
    crc.update(body);
    out.extend((body.len() as u32).to_be_bytes());
    out.extend(name);
    out.extend(body);
    out.extend(crc.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    /// Read back by the format's own rules: the chunks in order with their checksums, and the rows with filter 2 undone.
    #[test]
    fn what_is_written_is_the_picture() {
        let (width, height) = (5_u32, 4_u32);
        let picture: Vec<u8> = (0..width * height * 3).map(|i| (i * 37 % 256) as u8).collect();
        let png = encode(&picture, (width, height), 300.0).unwrap();
        let (signature, mut rest) = png.split_at(8);
        assert_eq!(signature, [0x89, b'P', b'N', b'G', 13, 10, 26, 10]);
        let mut found = Vec::new();
        while !rest.is_empty() {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            let (name, body) = (&rest[4..8], &rest[8..8 + length]);
            let mut crc = Crc::new();
            crc.update(&rest[4..8 + length]);
            assert_eq!(rest[8 + length..12 + length], crc.sum().to_be_bytes());
            found.push((String::from_utf8(name.to_vec()).unwrap(), body.to_vec()));
            rest = &rest[12 + length..];
        }
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["IHDR", "pHYs", "IDAT", "IEND"]);
        assert_eq!(found[0].1, [0, 0, 0, 5, 0, 0, 0, 4, 8, 2, 0, 0, 0]);
        // 300 dots an inch are 11811 a metre.
        assert_eq!(found[1].1, [0, 0, 0x2e, 0x23, 0, 0, 0x2e, 0x23, 1]);
        let mut rows = Vec::new();
        flate2::read::ZlibDecoder::new(found[2].1.as_slice()).read_to_end(&mut rows).unwrap();
        let mut read: Vec<u8> = Vec::new();
        for row in rows.chunks(1 + width as usize * 3) {
            assert_eq!(row[0], 2);
            for byte in &row[1..] {
                let above = read.len().checked_sub(width as usize * 3).map_or(0, |i| read[i]);
                read.push(byte.wrapping_add(above));
            }
        }
        assert_eq!(read, picture);
    }

    /// The checksum that every PNG ends with.
    #[test]
    fn ends_as_every_png_does() {
        let png = encode(&[0; 3], (1, 1), 72.0).unwrap();
        assert_eq!(png[png.len() - 8..], [b'I', b'E', b'N', b'D', 0xAE, 0x42, 0x60, 0x82]);
    }
}
