//! Which known word may be meant by one that is not known.

/// What others call what a file of ours calls otherwise: other tools, the command line.
const ELSEWHERE: [(&str, &str); 24] = [
    ("time_limit", "seconds"),
    ("node_limit", "nodes"),
    ("batch", "global_batch"),
    ("batch_size", "global_batch"),
    ("microbatch", "micro_batch"),
    ("seq_len", "seq"),
    ("seq_length", "seq"),
    ("context_length", "seq"),
    ("num_layers", "layers"),
    ("n_layers", "layers"),
    ("num_hidden_layers", "layers"),
    ("hidden_size", "hidden"),
    ("hidden_dim", "hidden"),
    ("d_model", "hidden"),
    ("num_heads", "heads"),
    ("n_heads", "heads"),
    ("num_attention_heads", "heads"),
    ("num_key_value_heads", "kv_heads"),
    ("intermediate_size", "ffn"),
    ("feedforward", "ffn"),
    ("clock", "frequency"),
    ("cost", "price"),
    ("tdp", "power"),
    ("num_chips", "chips"),
];

/// The known word that `word` most likely stands for: what another tool calls it, a slip of the keyboard, or a word that begins as it does
/// (in whole).
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let elsewhere = ELSEWHERE.iter().find(|(other, _)| *other == word).map(|(_, ours)| *ours);
    let begins = |k: &&&str| {
        let (short, long) = if k.len() < word.len() { (**k, word) } else { (word, **k) };
        short.len() > 2 && long.starts_with(short)
    };
    known
        .iter()
        .find(|k| elsewhere == Some(**k))
        .copied()
        .or_else(|| slip(word, known))
        .or_else(|| known.iter().filter(begins).min_by_key(|k| k.len().abs_diff(word.len())).copied())
}

/// `; did you mean "x"?`, or nothing.
pub fn meant(word: &str, known: &[&str]) -> String {
    nearest(word, known).map_or(String::new(), |near| format!("; did you mean {near:?}?"))
}

/// The known word that differs from `word` by as few letters as slip on a keyboard.
fn slip<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|k| (edit_distance(word, k), *k))
        // Of short words half the letters make another word.
        .filter(|(d, k)| *d <= 1 + k.len().min(word.len()) / 3 && 2 * d < k.len().max(word.len()))
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// The known words that may be meant by `word`, the likeliest first: slips of the keyboard, then words that hold it or that it
/// holds, in whole or but for a slip in one of their parts.
pub fn near<'k>(word: &str, known: &[&'k str], most: usize) -> Vec<&'k str> {
    let low = word.to_lowercase();
    let part_of = |whole: &str, part: &str| part.len() > 2 && whole.contains(part);
    let mut found: Vec<(usize, usize, &str)> = Vec::new();
    for name in known {
        let other = name.to_lowercase();
        let distance = edit_distance(&low, &other);
        let parts = || other.split(['_', '-', '.', ' ']).filter(|part| part.len() > 2);
        if slip(&low, &[&other]).is_some() {
            found.push((0, distance, name));
        } else if part_of(&other, &low) || part_of(&low, &other) {
            found.push((1, distance, name));
        } else if parts().any(|part| edit_distance(&low, part) <= 1) {
            found.push((2, distance, name));
        }
    }
    found.sort_by_key(|(class, distance, _)| (*class, *distance));
    found.into_iter().take(most).map(|(_, _, name)| name).collect()
}

/// `"a", "b" or "c"`.
pub fn quoted(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => format!("{one:?}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|name| format!("{name:?}")).collect();
            format!("{} or {last:?}", first.join(", "))
        }
    }
}

/// Letters left out, put in, replaced, or swapped with the next one.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let replaced = row[j] + usize::from(a[i] != b[j]);
            let swapped = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
            let swapped = if swapped { before[j - 1] + 1 } else { usize::MAX };
            next.push(replaced.min(row[j + 1] + 1).min(next[j] + 1).min(swapped));
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant() {
        for (word, known, meant) in [
            ("mpa", &["man", "map", "plot"][..], Some("map")),
            ("seqence", &["seq", "context"], Some("seq")),
            ("trainig", &["forward", "training"], Some("training")),
            ("train", &["forward", "training"], Some("training")),
            ("time_limit", &["tiles", "seconds"], Some("seconds")),
            ("batch_size", &["seq", "global_batch"], Some("global_batch")),
            ("tpp", &["tp", "pp"], Some("tp")),
            ("some", &["none", "full"], None),
            ("4", &["0", "1"], None),
            ("zzz", &["seq", "context"], None),
            ("", &["seq"], None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
