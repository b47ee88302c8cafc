//! The neutral record of one operator call: its name, and its inputs and outputs as tensors and scalars.

/// What the elements of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Element {
    /// Floating point, of any width.
    Float,
    /// Integers: indices, tokens.
    Int,
    /// Truth values: masks.
    Bool,
    /// Complex numbers.
    Complex,
    /// Anything else.
    Other,
}

impl Element {
    /// From a dtype as PyTorch writes it: `float32`, `c10::Half`, `long int`, `Tensor(c10::BFloat16)`.
    pub fn parse(text: &str) -> Self {
        let inner = text.rsplit_once('(').map_or(text, |(_, rest)| rest.trim_end_matches(')'));
        // PyTorch's own names, by the million.
        match inner {
            "float" | "double" | "c10::Half" | "c10::BFloat16" => return Self::Float,
            "long" | "int" => return Self::Int,
            "bool" => return Self::Bool,
            _ => {}
        }
        let name = inner.trim_start_matches("c10::").to_ascii_lowercase();
        if name.contains("complex") {
            Self::Complex
        } else if name.contains("float") || name.contains("half") || name == "double" {
            Self::Float
        } else if name.contains("bool") {
            Self::Bool
        } else if name.contains("int") || name.contains("long") || name.contains("char") || name.contains("short") {
            Self::Int
        } else {
            Self::Other
        }
    }
}

/// A tensor as an operator sees it: a strided window into a storage.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorArg {
    /// The storage: equal numbers share memory.
    pub storage: usize,
    /// First element, counted in elements from the start of the storage.
    pub offset: u64,
    /// Sizes.
    pub shape: Vec<u64>,
    /// Strides in elements where they are known. A stride of zero repeats an element (broadcast).
    pub strides: Option<Vec<u64>>,
    /// Bytes of one element.
    pub element_bytes: u64,
    /// What the elements are.
    pub element: Element,
}

impl TensorArg {
    /// Elements, repeats included.
    pub fn elements(&self) -> u64 {
        product(&self.shape)
    }
    /// Elements in memory: a broadcast dimension counts once.
    pub fn distinct(&self) -> u64 {
        match &self.strides {
            Some(strides) if strides.len() == self.shape.len() => self
                .shape
                .iter()
                .zip(strides)
                .filter(|(_, stride)| **stride != 0)
                .fold(1u64, |n, (size, _)| n.saturating_mul(*size))
                .min(self.elements()),
            _ => self.elements(),
        }
    }
    /// Bytes in memory.
    pub fn bytes(&self) -> u64 {
        self.distinct().saturating_mul(self.element_bytes)
    }
    /// The last size, one for a scalar.
    pub fn last(&self) -> u64 {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// The product of sizes, saturating: no input may overflow.
pub fn product(sizes: &[u64]) -> u64 {
    sizes.iter().fold(1u64, |n, s| n.saturating_mul(*s))
}

/// One argument or result.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// A tensor.
    Tensor(TensorArg),
    /// A list of arguments.
    List(Vec<Arg>),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A text: a device, a dtype, a name.
    Text(String),
    /// Nothing, or an undefined tensor.
    None,
}

impl Arg {
    /// The tensor, if it is one.
    pub fn tensor(&self) -> Option<&TensorArg> {
        match self {
            Self::Tensor(t) => Some(t),
            _ => None,
        }
    }
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Int(i) => Some(*i as f64),
            Self::Float(f) => Some(*f),
            Self::Bool(b) => Some(f64::from(u8::from(*b))),
            _ => None,
        }
    }
    /// The truth value, if it is one (an integer 0 or 1 counts).
    pub fn flag(&self) -> Option<bool> {
        match self {
            Self::Bool(b) => Some(*b),
            Self::Int(i) => Some(*i != 0),
            _ => None,
        }
    }
    /// The entries of a list.
    pub fn list(&self) -> Option<&[Arg]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
    /// Adds every tensor in it to `found`. Lists nest at most as deep as the reader of the file allowed.
    pub fn tensors<'a>(&'a self, found: &mut Vec<&'a TensorArg>) {
        match self {
            Self::Tensor(t) => found.push(t),
            Self::List(items) => items.iter().for_each(|i| i.tensors(found)),
            _ => {}
        }
    }
}

/// One operator call.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its name without namespace `aten` and without overload: `mm`, `_foreach_add_`; other namespaces stay (`c10d::allreduce_`).
    pub op: String,
    /// Arguments in the order of the schema.
    pub inputs: Vec<Arg>,
    /// Results.
    pub outputs: Vec<Arg>,
    /// Which inputs it writes (`Tensor(a!)` in the schema), by position.
    pub mutated: Vec<usize>,
    /// Those of `mutated` that are handed back as results: what is written to them is counted at the result, which names the
    /// new version of the storage, while the input names the one before.
    pub returned: Vec<usize>,
}

impl Call {
    /// Tensors among the inputs, lists unfolded.
    pub fn input_tensors(&self) -> Vec<&TensorArg> {
        let mut found = Vec::new();
        self.inputs.iter().for_each(|a| a.tensors(&mut found));
        found
    }
    /// Tensors among the results, lists unfolded.
    pub fn output_tensors(&self) -> Vec<&TensorArg> {
        let mut found = Vec::new();
        self.outputs.iter().for_each(|a| a.tensors(&mut found));
        found
    }
    /// Input `i` as a tensor.
    pub fn tensor(&self, i: usize) -> Option<&TensorArg> {
        self.inputs.get(i).and_then(Arg::tensor)
    }
    /// Result `i` as a tensor.
    pub fn output(&self, i: usize) -> Option<&TensorArg> {
        self.outputs.get(i).and_then(Arg::tensor)
    }
}

/// The plain name of an operator: `aten::add_`, `aten.add_.Tensor` and `add_` are all `add_`.
pub fn plain_name(name: &str) -> &str {
    if let Some(rest) = name.strip_prefix("aten::") {
        return rest.split('.').next().unwrap_or(rest);
    }
    match name.strip_prefix("aten.") {
        Some(rest) => rest.split('.').next().unwrap_or(rest),
        None => name,
    }
}

/// Positions of the arguments that a schema such as `aten::copy_(Tensor(a!) self, Tensor src) -> Tensor(a!)` says are
/// written.
pub fn mutated_arguments(schema: &str) -> Vec<usize> {
    let Some(open) = schema.find('(') else { return Vec::new() };
    let mut depth = 0i32;
    let mut position = 0;
    let mut found = Vec::new();
    for c in schema[open + 1..].chars() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' if depth == 0 => break,
            ')' | ']' => depth -= 1,
            ',' if depth == 0 => position += 1,
            '!' if found.last() != Some(&position) => found.push(position),
            _ => {}
        }
    }
    // A bare `*` separates the keyword arguments and is none itself.
    let arguments = &schema[open + 1..];
    match arguments.find("*,") {
        Some(star) => {
            let before = arguments[..star].matches(',').count();
            found.into_iter().map(|p| if p > before { p - 1 } else { p }).collect()
        }
        None => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_schemas() {
        assert_eq!(plain_name("aten.add_.Tensor"), "add_");
        assert_eq!(plain_name("aten::mm"), "mm");
        assert_eq!(plain_name("c10d::allreduce_"), "c10d::allreduce_");
        assert_eq!(mutated_arguments("aten::copy_(Tensor(a!) self, Tensor src, bool b=False) -> Tensor(a!)"), [0]);
        assert_eq!(mutated_arguments("aten::mm.out(Tensor a, Tensor b, *, Tensor(a!) out) -> Tensor(a!)"), [2]);
        assert_eq!(mutated_arguments("aten::_foreach_add_.List(Tensor(a!)[] self, Tensor[] other) -> ()"), [0]);
        assert!(mutated_arguments("aten::mm(Tensor a, Tensor b) -> Tensor").is_empty());
        assert!(mutated_arguments("").is_empty());
    }

    #[test]
    fn elements_of_every_spelling() {
        for (text, element) in [
            ("Tensor(c10::Half)", Element::Float),
            ("bfloat16", Element::Float),
            ("Tensor(long int)", Element::Int),
            ("unsigned char", Element::Int),
            ("bool", Element::Bool),
            ("Tensor(c10::complex<float>)", Element::Complex),
            ("Device", Element::Other),
        ] {
            assert_eq!(Element::parse(text), element, "{text}");
        }
    }

    #[test]
    fn broadcast_dimensions_count_once_in_memory() {
        let t = TensorArg {
            storage: 0,
            offset: 0,
            shape: vec![8, 4],
            strides: Some(vec![0, 1]),
            element_bytes: 2,
            element: Element::Float,
        };
        assert_eq!((t.elements(), t.distinct(), t.bytes()), (32, 4, 8));
    }
}
