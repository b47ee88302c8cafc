//! Random chains of blocks: each takes what the one before made, and has its backward kernels.

use super::case::{Graph, Op, Pass, Slot};
use super::random::{Builder, Random};

/// A product of a block: kernel, tensor read, tensor written.
type Product = (usize, usize, usize);

pub fn chain(random: &mut Random) -> Graph {
    let count = random.whole(2, 3) as usize;
    let training = random.one_in(2);
    let mut builder = Builder::new(random, training);
    builder.parts = false;
    builder.graph.blocks = (0..count).map(|_| builder.random.whole(1, 4)).collect();
    let (rows, columns) = (builder.size().max(2), builder.size());
    let mut between = builder.input(rows, columns);
    let mut products: Vec<Vec<Product>> = Vec::new();
    for block in 0..count {
        builder.block = block;
        let x = between;
        let mut mine: Vec<Product> = Vec::new();
        let mut tensors = vec![x];
        let wide = builder.weighted(x, None);
        mine.push((builder.graph.kernels.len() - 1, x, wide));
        tensors.push(wide);
        if builder.random.one_in(2) {
            let last = *tensors.last().unwrap();
            let more = builder.plain(last, &tensors);
            tensors.push(more);
        }
        let from = *tensors.last().unwrap();
        let usable = builder.shape(from).1 == columns;
        let from = if usable { from } else { x };
        between = builder.weighted(from, Some(rows));
        mine.push((builder.graph.kernels.len() - 1, from, between));
        if builder.graph.blocks[block] > 1 {
            builder.graph.tensors[x].carried_from = Some(between);
        }
        products.push(mine);
    }
    if training {
        backward(&mut builder, &products);
    } else {
        builder.graph.tensors[between].output = true;
    }
    builder.finish()
}

fn backward(builder: &mut Builder, products: &[Vec<Product>]) {
    let last = products.last().unwrap()[1].2;
    let (rows, columns) = builder.shape(last);
    let mut dy = builder.input(rows, columns);
    for (block, mine) in products.iter().enumerate().rev() {
        builder.block = block;
        builder.pass = Pass::GradientOfInput;
        let handed = dy;
        if builder.random.one_in(2) {
            dy =
                builder.kernel(Op::Elementwise, (1, rows, 1, columns), vec![(dy, Slot::Data), (mine[1].2, Slot::Data)]);
        }
        let x = mine[1].1;
        gradient(builder, mine[1], dy);
        let dx = of_input(builder, mine[1], dy);
        if x == mine[0].1 {
            dy = dx;
        } else {
            // Back through what lies between the two products.
            let dh = if builder.shape(dx) == builder.shape(mine[0].2) {
                dx
            } else {
                let (r, c) = builder.shape(mine[0].2);
                builder.kernel(Op::Elementwise, (1, r, 1, c), vec![(dx, Slot::Aligned), (mine[0].2, Slot::Data)])
            };
            gradient(builder, mine[0], dh);
            builder.pass = Pass::GradientOfInput;
            dy = of_input(builder, mine[0], dh);
        }
        builder.pass = Pass::GradientOfInput;
        if builder.shape(dy) != (rows, columns) {
            dy = builder.kernel(Op::Elementwise, (1, rows, 1, columns), vec![(dy, Slot::Aligned)]);
        }
        if builder.graph.blocks[block] > 1 {
            builder.graph.tensors[handed].carried_from = Some(dy);
        }
    }
}

fn of_input(builder: &mut Builder, (owner, ..): Product, dy: usize) -> usize {
    builder.pass = Pass::GradientOfInput;
    let kernel = builder.graph.kernels[owner].clone();
    if kernel.reads[0].1 != Slot::Rhs {
        return dy;
    }
    let dx = builder.kernel(Op::Weight, (1, kernel.k, kernel.outer * kernel.m, kernel.n), vec![(dy, Slot::Rhs)]);
    builder.graph.kernels.last_mut().unwrap().weight_of = Some(owner);
    dx
}

fn gradient(builder: &mut Builder, (owner, x, _): Product, dy: usize) {
    let kernel = builder.graph.kernels[owner].clone();
    builder.pass = Pass::GradientOfWeight;
    let read = if kernel.window > 1 {
        (x, Slot::View)
    } else if kernel.reads[0].1 == Slot::RhsT {
        (x, Slot::LhsT)
    } else {
        (x, Slot::Lhs)
    };
    builder.kernel(Op::Pair, (1, kernel.k, kernel.n, kernel.outer * kernel.m), vec![read, (dy, Slot::RhsT)]);
    builder.graph.kernels.last_mut().unwrap().weight_of = Some(owner);
}
