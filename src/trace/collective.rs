//! A collective as a trace records it: the arguments that PyTorch's `record_param_comms` and Kineto's events share.

use super::Text;

/// Arguments of one collective or point-to-point call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Collective {
    /// As recorded: `allreduce`, `_allgather_base`, `send`, ...
    pub name: Option<Text>,
    /// Element type as recorded: `Float`, `Half`, ...
    pub dtype: Option<Text>,
    /// Elements of this rank's input.
    pub in_elems: Option<u64>,
    /// Elements of this rank's output.
    pub out_elems: Option<u64>,
    /// Input split sizes of an all-to-all, as elements of the first dimension a rank.
    pub in_split: Vec<u64>,
    /// Output split sizes.
    pub out_split: Vec<u64>,
    /// First global rank of the group.
    pub rank_start: Option<i64>,
    /// Distance between global ranks of the group.
    pub rank_stride: Option<i64>,
    /// Name of the process group.
    pub group: Option<Text>,
    /// Description of the process group.
    pub group_desc: Option<Text>,
    /// Ranks in the group.
    pub group_size: Option<u64>,
    /// Global ranks of the group, where listed.
    pub group_ranks: Vec<u64>,
    /// Rank of the caller in the group (or the peer, for point-to-point calls), where recorded.
    pub rank: Option<i64>,
    /// Sender of a point-to-point call.
    pub src: Option<i64>,
    /// Receiver of a point-to-point call.
    pub dst: Option<i64>,
    /// Sequence number in the group.
    pub seq: Option<i64>,
    /// Whether the caller did not wait.
    pub asynchronous: Option<bool>,
}

/// Integers of a list written as text: `[0, 1, 2]`, also with `...` in it (Kineto cuts long lists short); `None` when cut short
/// or when anything else stands there.
pub fn list_of_integers(text: &str) -> Option<Vec<u64>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|item| item.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_in_text() {
        assert_eq!(list_of_integers("[0, 1, 7]"), Some(vec![0, 1, 7]));
        assert_eq!(list_of_integers("[]"), Some(vec![]));
        assert_eq!(list_of_integers("[0, 1, ..., 7]"), None);
        assert_eq!(list_of_integers(""), None);
    }
}
