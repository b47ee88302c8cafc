//! How many samples a recorded step holds.

use super::*;

/// The samples of a step: what the file says, else the leading size of an input that every product of the forward pass can be
/// divided by. One if there is none.
pub fn batch(program: &Program) -> u64 {
    let mut candidates: Vec<u64> = program.batch.into_iter().collect();
    let mut inputs: Vec<(bool, usize, u64)> = Vec::new();
    for (i, v) in program.values.iter().enumerate() {
        let made_up =
            matches!(v.origin, Origin::Made(s) if program.steps.get(s).is_some_and(|s| s.cost.class == Class::Fill));
        if (v.origin == Origin::Input || made_up) && v.shape.len() > usize::from(v.float) {
            inputs.push((v.float, i, v.shape.first().copied().unwrap_or(1)));
        }
    }
    inputs.sort_unstable();
    candidates.extend(inputs.iter().map(|(_, _, size)| *size));
    candidates.into_iter().filter(|b| *b > 1).find(|b| divides(program, *b)).unwrap_or(1)
}

/// Whether the step can hold so many samples: no product of its forward pass speaks against it.
pub fn may_be_batch(program: &Program, batch: u64) -> bool {
    let multiplies = |s: &Step| {
        s.part == Part::Forward && matches!(s.cost.class, Class::Product | Class::Attention | Class::Convolution)
    };
    batch == 1 || !program.steps.iter().any(multiplies) || divides(program, batch)
}

/// Whether every product of the forward pass has a number of columns or problems that `b` divides.
fn divides(program: &Program, b: u64) -> bool {
    let mut products = 0;
    let ok = program.steps.iter().filter(|s| s.part == Part::Forward).all(|s| {
        let leading = match (s.cost.class, s.call.op.as_str()) {
            (Class::Product, "mm" | "_scaled_mm" | "linear" | "bmm" | "matmul") => s.call.tensor(0),
            (Class::Product, "addmm" | "baddbmm") => s.call.tensor(1),
            (Class::Attention | Class::Convolution, _) => s.call.tensor(0),
            _ => return true,
        };
        products += 1;
        leading.is_some_and(|t| {
            let columns =
                if t.shape.len() == 2 { t.shape[0] } else { product(&t.shape[..t.shape.len().saturating_sub(2)]) };
            columns.is_multiple_of(b)
        })
    });
    ok && products > 0
}
