//! Between mapping files and what the program places: out, in, and measured weights.

use super::{Configuration, Connection, Fault, Faults, Form, Generator, Instance, Partition};
use crate::model::divisors::gcd;
use crate::place::cores::{Network, Wire};
use crate::place::placement::capacities;
use crate::place::{Actor, ActorGraph, Channel, Core, Cores, Fixed, Kind, Placement, Work};
use crate::spec::nearest::nearest;
use std::collections::HashMap;

impl Configuration {
    /// The mapping file of a placement: a partition for each core that holds an actor, the actors in the order of the graph, FIFOs with their
    /// sizes. With `tick` seconds also the weights, for one iteration: ticks, and tokens passed.
    pub fn of(graph: &ActorGraph, cores: &Cores, placement: &Placement, form: Form, tick: Option<f64>) -> Self {
        let firings = graph.repetitions().unwrap_or_else(|_| vec![1; graph.actors.len()]);
        let mut partitions: Vec<Partition> = (0..cores.len())
            .map(|core| Partition {
                id: core as u64,
                pe: Some("x86_64".into()),
                scheduling: Some("ROUND_ROBIN".into()),
                generator: Some("sw".into()),
                host: Some(true),
                instances: Vec::new(),
            })
            .collect();
        for ((actor, core), q) in graph.actors.iter().zip(&placement.core_of).zip(&firings) {
            let Some((partition, processor)) = partitions.get_mut(*core).zip(cores.cores.get(*core)) else { continue };
            let ticks = |tick: f64| (processor.firing_seconds(actor) * *q as f64 / tick).round() as u64;
            partition.instances.push(Instance { id: actor.name.clone(), complexity: tick.map(ticks) });
        }
        partitions.retain(|p| !p.instances.is_empty());
        let connection = |(c, channel): (usize, &Channel)| {
            let name = |a: usize| graph.actors[a].name.clone();
            Connection {
                source: (name(channel.source), channel.source_port.clone()),
                target: (name(channel.target), channel.target_port.clone()),
                size: placement.capacities.get(c).copied().or(channel.capacity),
                token_size: (channel.token_bytes >= 1.0).then(|| channel.token_bytes.ceil() as u64),
                bandwidth: tick.map(|_| firings[channel.source] * channel.produced),
                medium: None,
            }
        };
        let generator = Generator { id: "sw".into(), platform: "multicore".into(), parameters: Vec::new() };
        let connections = graph.channels.iter().enumerate().map(connection).collect();
        let network = Some(graph.name.clone());
        Self { form, network, partitions, generators: vec![generator], media: Vec::new(), connections }
    }

    /// The placement that a file says of a graph: its partitions by the numbers of the cores, its sizes where they are stated.
    ///
    /// # Errors
    /// All [`Faults`]: actors that one of the two does not have, cores that do not exist, FIFOs that the graph does not have.
    pub fn placement(&self, file: &str, graph: &ActorGraph, cores: usize) -> Result<Placement, Faults> {
        let mut list = Vec::new();
        let mut core_of: Vec<Option<usize>> = vec![None; graph.actors.len()];
        let index: HashMap<&str, usize> = graph.actors.iter().enumerate().map(|(i, a)| (a.name.as_str(), i)).collect();
        for partition in &self.partitions {
            let core = usize::try_from(partition.id).ok().filter(|c| *c < cores);
            if core.is_none() {
                let message = format!("partition {}; the cores are 0 to {}", partition.id, cores.saturating_sub(1));
                list.push(fault("partitioning", message));
            }
            for instance in &partition.instances {
                match index.get(instance.id.as_str()) {
                    Some(a) => core_of[*a] = core.or(Some(0)),
                    None => list.push(fault("partitioning", stranger(&instance.id, graph))),
                }
            }
        }
        let missing: Vec<String> = (graph.actors.iter().zip(&core_of))
            .filter(|(_, core)| core.is_none())
            .map(|(a, _)| format!("{:?}", a.name))
            .collect();
        if !missing.is_empty() {
            list.push(fault("partitioning", format!("no partition holds {}; place them", some(&missing))));
        }
        let mut capacities = capacities(graph);
        for (connection, channel) in self.channels_of(graph, &mut list) {
            if let Some(size) = connection.size {
                capacities[channel] = size;
            }
        }
        if list.is_empty() {
            let core_of = core_of.into_iter().flatten().collect();
            return Ok(Placement { core_of, capacities, replicas: 1 });
        }
        Err(Faults { file: file.into(), list })
    }

    /// Connections of the file with the channels of the graph that they are.
    fn channels_of<'c>(&'c self, graph: &ActorGraph, list: &mut Vec<Fault>) -> Vec<(&'c Connection, usize)> {
        let name = |a: usize| graph.actors[a].name.as_str();
        let mut index: HashMap<[&str; 4], usize> = HashMap::new();
        for (i, c) in graph.channels.iter().enumerate() {
            index.insert([name(c.source), &c.source_port, name(c.target), &c.target_port], i);
        }
        let mut found = Vec::new();
        for c in &self.connections {
            let key = [c.source.0.as_str(), &c.source.1, &c.target.0, &c.target.1];
            match index.get(&key) {
                Some(channel) => found.push((c, *channel)),
                None => {
                    let [source, out, target, port] = key;
                    let message =
                        format!("the graph has no FIFO from {source:?}.{out} to {target:?}.{port}; take it out");
                    list.push(fault("connections", message));
                }
            }
        }
        found
    }

    /// The graph that a file describes by itself. A profile tells what passed in a whole run, not firings: with g the greatest common
    /// divisor of all `bandwidth`s a run is taken as g firings of every actor, each with 1/g of its ticks and of the tokens.
    /// Without them every firing moves one token. One core for each partition, alike, with free transfers.
    ///
    /// # Errors
    /// All [`Faults`]: actors without a weight.
    pub fn graph(&self, file: &str, tick: f64) -> Result<(ActorGraph, Cores, Placement), Faults> {
        let mut list = Vec::new();
        let common = self.connections.iter().filter_map(|c| c.bandwidth).fold(0, gcd).max(1);
        let mut actors = Vec::new();
        let mut core_of = Vec::new();
        let mut unweighed = Vec::new();
        let mut index = HashMap::new();
        for (core, partition) in self.partitions.iter().enumerate() {
            for instance in &partition.instances {
                let Some(complexity) = instance.complexity else {
                    unweighed.push(format!("{:?}", instance.id));
                    continue;
                };
                index.insert(instance.id.as_str(), actors.len());
                let seconds = complexity as f64 * tick / common as f64;
                let work = Work::Measured { seconds, deviation: 0.0 };
                actors.push(Actor {
                    name: instance.id.clone(),
                    kind: Kind::Vector,
                    work,
                    state_bytes: 0.0,
                    fixed: Fixed::Weights(0.0),
                    outside: None,
                });
                core_of.push(core);
            }
        }
        if !unweighed.is_empty() {
            let message = format!(
                "no complexity of {}; give a profile, which has the ticks of each, or simulate a placement file",
                some(&unweighed)
            );
            list.push(fault("partitioning", message));
        }
        let mut channels = Vec::new();
        for c in &self.connections {
            let Some((source, target)) = index.get(c.source.0.as_str()).zip(index.get(c.target.0.as_str())) else {
                continue;
            };
            if c.bandwidth == Some(0) {
                continue;
            }
            let tokens = c.bandwidth.map_or(1, |b| b / common);
            channels.push(Channel {
                source: *source,
                source_port: c.source.1.clone(),
                target: *target,
                target_port: c.target.1.clone(),
                produced: tokens,
                consumed: tokens,
                initial: 0,
                token_bytes: c.token_size.unwrap_or(1) as f64,
                capacity: c.size,
            });
        }
        if !list.is_empty() {
            return Err(Faults { file: file.into(), list });
        }
        let cores = Cores {
            name: "cores of the file".into(),
            cores: self
                .partitions
                .iter()
                .map(|p| Core {
                    name: format!("core {}", p.id),
                    speed: 1.0,
                    rates: [f64::INFINITY; 2],
                    memory_bandwidth: f64::INFINITY,
                    firing_overhead: 0.0,
                    memory: f64::INFINITY,
                })
                .collect(),
            local: Wire::FREE,
            network: Network::Levels(vec![(self.partitions.len().max(1) as u64, Wire::FREE)]),
        };
        let name = self.network.clone().unwrap_or_else(|| file.into());
        let graph = ActorGraph { name, actors, channels, batch: 1, others: Vec::new() };
        let capacities = capacities(&graph);
        Ok((graph, cores, Placement { core_of, capacities, replicas: 1 }))
    }
}

/// Measured work of the actors of a graph from one or several profiles of it: mean and standard deviation (of the sample) over the profiles, in
/// seconds a firing, with a tick of `tick` seconds. The iterations of a run follow from its `bandwidth`s: tokens passed over those
/// of an iteration; without any it was one.
///
/// # Errors
/// All [`Faults`]: a profile that names other actors, lacks some, or whose bandwidths are of different numbers of iterations.
pub fn weights(profiles: &[(String, Configuration)], graph: &ActorGraph, tick: f64) -> Result<Vec<Work>, Vec<Faults>> {
    let firings = graph.repetitions().unwrap_or_else(|_| vec![1; graph.actors.len()]);
    let index: HashMap<&str, usize> = graph.actors.iter().enumerate().map(|(i, a)| (a.name.as_str(), i)).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); graph.actors.len()];
    let mut all = Vec::new();
    for (file, profile) in profiles {
        let mut list = Vec::new();
        let iterations = iterations_of(profile, graph, &firings, &mut list);
        let mut seen = vec![false; graph.actors.len()];
        let mut strangers = Vec::new();
        for instance in profile.partitions.iter().flat_map(|p| &p.instances) {
            match (index.get(instance.id.as_str()), instance.complexity) {
                (Some(a), Some(ticks)) => {
                    seen[*a] = true;
                    samples[*a].push(ticks as f64 * tick / (iterations * firings[*a] as f64));
                }
                (Some(_), None) => {}
                (None, _) => strangers.push(instance.id.as_str()),
            }
        }
        if strangers.len() == 1 {
            list.push(fault("partitioning", stranger(strangers[0], graph)));
        } else if !strangers.is_empty() {
            let names: Vec<String> = strangers.iter().map(|s| format!("{s:?}")).collect();
            let message = format!(
                "the graph {:?} has no actors {}; it is the profile of another graph: take that of this one",
                graph.name,
                some(&names)
            );
            list.push(fault("partitioning", message));
        }
        let missing: Vec<String> = (graph.actors.iter().zip(&seen))
            .filter(|(_, seen)| !**seen)
            .map(|(a, _)| format!("{:?}", a.name))
            .collect();
        if !missing.is_empty() {
            let message = format!("no complexity of {}; measure them too", some(&missing));
            list.push(fault("partitioning", message));
        }
        if !list.is_empty() {
            all.push(Faults { file: file.clone(), list });
        }
    }
    if !all.is_empty() {
        return Err(all);
    }
    let work = |values: &Vec<f64>| {
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|v| (v - mean) * (v - mean)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        Work::Measured { seconds: mean, deviation }
    };
    Ok(samples.iter().map(work).collect())
}

/// Iterations of the run that was measured.
fn iterations_of(profile: &Configuration, graph: &ActorGraph, firings: &[u64], list: &mut Vec<Fault>) -> f64 {
    let mut found: Option<(f64, usize)> = None;
    for (connection, channel) in profile.channels_of(graph, &mut Vec::new()) {
        let Some(passed) = connection.bandwidth else { continue };
        let c = &graph.channels[channel];
        let name = |c: &Channel| format!("{:?} -> {:?}", graph.actors[c.source].name, graph.actors[c.target].name);
        let iterations = passed as f64 / (firings[c.source] * c.produced) as f64;
        match found {
            None => found = Some((iterations, channel)),
            Some((first, other)) if (first - iterations).abs() > 1e-9 * first.max(iterations) => {
                let message = format!(
                    "{passed} tokens through {} are {iterations} iterations, and those through {} are {first}; profile a whole number of \
                     iterations of the graph at hand",
                    name(c),
                    name(&graph.channels[other])
                );
                list.push(fault("connections", message));
                break;
            }
            Some(_) => {}
        }
    }
    match found {
        Some((iterations, _)) if iterations > 0.0 => iterations,
        _ => 1.0,
    }
}

fn fault(field: &str, message: String) -> Fault {
    Fault { at: None, field: field.into(), message }
}

fn stranger(name: &str, graph: &ActorGraph) -> String {
    let names: Vec<&str> = graph.actors.iter().map(|a| a.name.as_str()).collect();
    match nearest(name, &names) {
        Some(near) => format!("the graph {:?} has no actor {name:?}; did you mean {near:?}?", graph.name),
        None => format!("the graph {:?} has no actor {name:?}; take it out", graph.name),
    }
}

/// The first few of a list, and how many more there are.
fn some(names: &[String]) -> String {
    const FEW: usize = 5;
    let shown = names.iter().take(FEW).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > FEW { format!("{shown} and {} more", names.len() - FEW) } else { shown }
}
