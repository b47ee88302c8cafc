//! Fitting text into a given width.

use super::fonts;

/// `text` without characters that SVG forbids or that would break the line. Characters that the font lacks are written as their numbers
/// (`\u4e2d`), as a PNG has no other font to take them from.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            _ if c.is_control() || c == '\u{FFFE}' || c == '\u{FFFF}' => out.push(' '),
            _ if fonts::has(c) => out.push(c),
            _ => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
    }
    out.trim().to_string()
}

/// `text` shortened in the middle to fit into `room` points. The middle goes because names of systems tend to differ
/// at either end ("SN30 / torus-2d / ... / NVLink").
pub(crate) fn fit(text: &str, size: f64, bold: bool, room: f64) -> String {
    let text = clean(text);
    if fonts::width(&text, size, bold) <= room {
        return text;
    }
    let chars: Vec<char> = text.chars().collect();
    // The longest version that fits, by bisection over the number of characters kept.
    let (mut low, mut high) = (0, chars.len());
    let cut = |keep: usize| -> String {
        let head = keep.div_ceil(2);
        let tail = keep - head;
        let start: String = chars[..head].iter().collect();
        let end: String = chars[chars.len() - tail..].iter().collect();
        format!("{}…{}", start.trim_end(), end.trim_start())
    };
    while low < high {
        let mid = (low + high).div_ceil(2);
        if fonts::width(&cut(mid), size, bold) <= room {
            low = mid;
        } else {
            high = mid - 1;
        }
    }
    cut(low)
}

/// `text` broken at spaces into at most `lines` lines of `room` points; what is left over is shortened.
pub(crate) fn wrap(text: &str, size: f64, bold: bool, room: f64, lines: usize) -> Vec<String> {
    let text = clean(text);
    let mut rows: Vec<String> = Vec::new();
    let mut row = String::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let longer = if row.is_empty() { word.to_string() } else { format!("{row} {word}") };
        if row.is_empty() || fonts::width(&longer, size, bold) <= room {
            row = longer;
        } else if rows.len() + 1 < lines {
            rows.push(std::mem::replace(&mut row, word.to_string()));
        } else {
            let rest: Vec<&str> = words.by_ref().collect();
            row = [longer, rest.join(" ")].join(" ");
        }
    }
    if !row.is_empty() {
        rows.push(row);
    }
    rows.iter().map(|row| fit(row, size, bold, room)).collect()
}

/// Each of `texts` in at most three lines of `room` points, broken at spaces, else in at most four also broken after `-`, `_`, `/` and `.`;
/// `None` if a text does not fit without being shortened.
pub(crate) fn wrap_whole(texts: &[String], size: f64, room: f64) -> Option<Vec<Vec<String>>> {
    let whole = |text: &String| {
        let lines = wrap(text, size, false, room, 3);
        let words = clean(text).split_whitespace().collect::<Vec<_>>().join(" ");
        (lines.join(" ") == words).then_some(lines)
    };
    let broken = |text: &String| {
        let text = clean(text);
        let mut lines: Vec<String> = vec![String::new()];
        for part in text.split_inclusive([' ', '-', '_', '/', '.']) {
            let last = lines.last_mut()?;
            let longer = format!("{last}{part}");
            if last.is_empty() || fonts::width(longer.trim_end(), size, false) <= room {
                *last = longer;
            } else {
                lines.push(part.to_string());
            }
        }
        let lines: Vec<String> = lines.iter().map(|line| line.trim().to_string()).collect();
        (lines.len() <= 4 && lines.iter().all(|line| fonts::width(line, size, false) <= room)).then_some(lines)
    };
    texts.iter().map(whole).collect::<Option<Vec<_>>>().or_else(|| texts.iter().map(broken).collect())
}

/// The width of the widest of some texts.
pub(crate) fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, size: f64) -> f64 {
    texts.into_iter().map(|text| fonts::width(text, size, false)).fold(0.0, f64::max)
}
