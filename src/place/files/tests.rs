//! Round trips to the byte, both spellings, faults with their places.

use super::convert::weights;
use super::{Configuration, Form, read, write};
use crate::place::simulate::{Limits, Net, Outcome, Transfers, simulate};
use crate::place::{ActorGraph, Work};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const PROFILE: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<configuration>
\t<partitioning>
\t\t<partition id=\"0\" scheduling=\"ROUND_ROBIN\">
\t\t\t<instance id=\"source\" complexity=\"1000\"/>
\t\t\t<instance id=\"sink\" complexity=\"1000\"/>
\t\t</partition>
\t\t<partition id=\"3\" scheduling=\"ROUND_ROBIN\">
\t\t\t<instance id=\"work &amp; &lt;more&gt;\" complexity=\"3000\"/>
\t\t</partition>
\t</partitioning>
\t<connections>
\t\t<fifo-connection source=\"source\" source-port=\"Out\" target=\"work &amp; &lt;more&gt;\" target-port=\"In\" size=\"2\" token-size=\"4\" bandwidth=\"1000\"/>
\t\t<fifo-connection source=\"work &amp; &lt;more&gt;\" source-port=\"Out\" target=\"sink\" target-port=\"In\" size=\"2\" token-size=\"4\" bandwidth=\"1000\"/>
\t</connections>
</configuration>
";

const XCF: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>
<configuration>
    <network id=\"net\"/>
    <partitioning>
        <partition id=\"0\" pe=\"x86_64\" scheduling=\"ROUND_ROBIN\" code-generator=\"sw\" host=\"true\">
            <instance id=\"a\"/>
        </partition>
        <partition id=\"1\" pe=\"FPGA\" scheduling=\"FULL_PARALLEL\" code-generator=\"hw\" host=\"false\">
            <instance id=\"b\" complexity=\"7\"/>
        </partition>
    </partitioning>
    <code-generators>
        <code-generator id=\"sw\" platform=\"multicore\"/>
        <code-generator id=\"hw\" platform=\"vivado-hls\">
            <parameter key=\"clock\" value=\"3.3\"/>
        </code-generator>
    </code-generators>
    <media>
        <memory medium=\"ddr\" size=\"1048576\" shared=\"true\" reserve=\"false\">
            <parameter key=\"base\" value=\"0x100000\"/>
        </memory>
    </media>
    <connections>
        <connection source=\"a\" source-port=\"O\" target=\"b\" target-port=\"I\" size=\"4096\" bandwidth=\"12\" medium=\"pcie\"/>
    </connections>
</configuration>
";

fn faults(text: &str) -> Vec<String> {
    read("m.xml", text.as_bytes()).unwrap_err().to_string().lines().map(str::to_string).collect()
}

#[test]
fn canonical_files_come_back_to_the_byte() {
    for (text, form) in [(PROFILE, Form::Xml), (XCF, Form::Xcf)] {
        let read = read("f", text.as_bytes()).unwrap();
        assert_eq!(read.form, form);
        assert_eq!(write(&read).unwrap(), text);
    }
}

/// The same file in the older spelling, and with its comments, order and blanks changed, is the same configuration.
#[test]
fn other_spellings_say_the_same() {
    let capital = "<Configuration name=\"net\"><Partitioning><Partition id='0' pe='x86_64' host='true'><Instance id='a'/>\
                   <Memory id='m' size='10'/></Partition><Partition id='1' pe='FPGA'><Instance id='b'/></Partition></Partitioning>\
                   <!-- c --><Connection src='a' src-port='O' dst='b' dst-port='I' size='4096' medium='pcie'/>\
                   <Connection instance='b' var='v' medium='m'/></Configuration>";
    let read = read("f", capital.as_bytes()).unwrap();
    assert_eq!((read.form, read.network.as_deref()), (Form::Capital, Some("net")));
    assert_eq!(read.partitions.iter().map(|p| p.instances.len()).collect::<Vec<_>>(), [1, 1]);
    let c = &read.connections[0];
    assert_eq!(
        (c.source.0.as_str(), c.target.1.as_str(), c.size, c.medium.as_deref()),
        ("a", "I", Some(4096), Some("pcie"))
    );
    assert_eq!(read.connections.len(), 1);
    let again = write(&read).unwrap();
    assert_eq!(write(&super::read("g", again.as_bytes()).unwrap()).unwrap(), again);
}

#[test]
fn faults_have_their_places() {
    let text = "<configuration>\n <partitioning>\n  <partition id=\"x\">\n   <instance/>\n   <instance id=\"a\"/>\n   <instance id=\"a\"/>\n  \
                </partition>\n  <partion id=\"1\"/>\n </partitioning>\n <connections>\n  <fifo-connection source=\"a\" source-port=\"o\" \
                target=\"a\" target-port=\"i\" size=\"0\" tokensize=\"4\"/>\n </connections>\n</configuration>\n";
    assert_eq!(
        faults(text),
        [
            "m.xml:3:14: configuration/partitioning/partition@id: expected a whole number from 0 to 2^53, found \"x\"",
            "m.xml:4:4: configuration/partitioning/partition/instance@id: missing; expected the name of the actor",
            "m.xml:6:4: configuration/partitioning/partition/instance: the actor \"a\" stands twice (first on line 5); place it once",
            "m.xml:8:3: configuration/partitioning/partion: unknown element; did you mean \"partition\"?",
            "m.xml:11:74: configuration/connections/fifo-connection@size: expected a whole number from 1 to 2^53, found \"0\"",
            "m.xml:11:83: configuration/connections/fifo-connection@tokensize: unknown attribute; did you mean \"token-size\"?",
        ]
    );
}

#[test]
fn hostile_files_are_refused() {
    let bomb = "<?xml version=\"1.0\"?>\n<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;&a;\">]>\n<configuration>&b;</configuration>";
    assert_eq!(faults(bomb), ["m.xml:2:1: a document type; take it out: entities are not expanded"]);
    let deep = "<configuration>".repeat(200_000);
    assert_eq!(faults(&deep).len(), 1);
    let closed = format!("{}{}", "<configuration>".repeat(100_000), "</configuration>".repeat(100_000));
    assert!(
        faults(&closed)[0].starts_with("m.xml:1:1: configuration: no element partitioning"),
        "{:?}",
        faults(&closed)
    );
    assert_eq!(faults("<configuration>\n<partitioning"), ["m.xml:2:14: the file ends here, before it is complete"]);
    for cut in 0..PROFILE.len() - 1 {
        if PROFILE.is_char_boundary(cut) {
            assert!(read("m", &PROFILE.as_bytes()[..cut]).is_err(), "{cut}");
        }
    }
    assert!(
        read("m", b"<configuration>\xff</configuration>").unwrap_err().to_string().starts_with("m:1:16: not UTF-8")
    );
    let many = format!("<configuration><partitioning>{}</partitioning></configuration>", "<p/>".repeat(5_000));
    let told = faults(&many);
    assert_eq!((told.len(), told[100].as_str()), (101, "m.xml: 4900 more faults are not told"));
}

fn graph_of(text: &str) -> (Configuration, ActorGraph) {
    let profile = read("p.xml", text.as_bytes()).unwrap();
    let (graph, _, _) = profile.graph("p.xml", 1e-3).unwrap();
    (profile, graph)
}

/// The profile is 1,000 firings; a tick is 1 ms: 1, 3 and 1 ms a firing. Two places in each FIFO: 3 ms an iteration.
#[test]
fn a_profile_is_simulated_by_itself() {
    let profile = read("p.xml", PROFILE.as_bytes()).unwrap();
    let (graph, cores, placement) = profile.graph("p.xml", 1e-3).unwrap();
    let net = Net::of(&graph, &cores, &placement, Transfers::Free).unwrap();
    let Ok(Outcome::Steady(steady)) = simulate(&net, &net.capacities(), Limits::default()) else { panic!() };
    assert_eq!(steady.iteration_s, 0.003);
    assert_eq!(net.cores, ["core 0", "core 3"]);
    // Out and in again: the same placement.
    let out = Configuration::of(&graph, &cores, &placement, Form::Xcf, None);
    let back = read("o.xcf", write(&out).unwrap().as_bytes()).unwrap().placement("o.xcf", &graph, 2).unwrap();
    assert_eq!(back, placement);
}

/// Two profiles: mean and deviation; one of another graph is refused with names.
#[test]
fn profiles_are_weights_with_spread() {
    let (first, graph) = graph_of(PROFILE);
    let (mut second, _) = graph_of(PROFILE);
    second.partitions[1].instances[0].complexity = Some(5_000);
    let pair = [("a".to_string(), first.clone()), ("b".to_string(), second.clone())];
    let work = weights(&pair, &graph, 1e-3).unwrap();
    // In the order of the graph: source, sink, work. 3 and 5 ms: mean 4, deviation sqrt(1 + 1).
    let Work::Measured { seconds, deviation } = work[2] else { panic!() };
    assert!((seconds - 0.004).abs() < 1e-15 && (deviation - 2f64.sqrt() * 1e-3).abs() < 1e-12, "{seconds} {deviation}");
    assert_eq!(work[0], Work::Measured { seconds: 0.001, deviation: 0.0 });
    second.partitions[0].instances[1].id = "snk".into();
    let told = weights(&[("b.xml".into(), second.clone())], &graph, 1.0).unwrap_err()[0].to_string();
    assert_eq!(
        told,
        "b.xml: partitioning: the graph \"p.xml\" has no actor \"snk\"; did you mean \"sink\"?\n\
         b.xml: partitioning: no complexity of \"sink\"; measure them too"
    );
    let mut uneven = first;
    uneven.connections[1].bandwidth = Some(999);
    let told = weights(&[("c.xml".into(), uneven)], &graph, 1.0).unwrap_err()[0].to_string();
    assert!(told.contains("are 999 iterations, and those through \"source\" -> \"work & <more>\" are 1000"), "{told}");
}

fn name() -> impl Strategy<Value = String> {
    // Whatever XML can hold.
    proptest::collection::vec(
        prop_oneof![
            4 => proptest::char::range('a', 'z'),
            1 => proptest::sample::select(vec!['&', '<', '>', '"', '\'', ' ', '\t', '\n', '\r', 'é', '\u{10348}', ']']),
        ],
        0..6,
    )
    .prop_map(|c| format!("n{}", c.into_iter().collect::<String>()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    /// What is written is read as it was, and written as it was.
    #[test]
    fn written_files_come_back(
        names in proptest::collection::hash_set(name(), 1..8),
        port in name(),
        numbers in proptest::collection::vec(proptest::option::of(1u64..1 << 53), 4),
        xcf in any::<bool>(),
    ) {
        let names: Vec<String> = names.into_iter().collect();
        let instance = |id: &String| super::Instance { id: id.clone(), complexity: numbers[3] };
        let configuration = Configuration {
            form: if xcf { Form::Xcf } else { Form::Xml },
            network: xcf.then(|| port.clone()),
            partitions: names.chunks(3).enumerate().map(|(i, part)| super::Partition {
                id: i as u64,
                pe: xcf.then(|| "x86_64".into()),
                scheduling: Some("ROUND_ROBIN".into()),
                generator: xcf.then(|| port.clone()),
                host: xcf.then_some(i == 0),
                instances: part.iter().map(instance).collect(),
            }).collect(),
            generators: Vec::new(),
            media: Vec::new(),
            connections: names.windows(2).map(|pair| super::Connection {
                source: (pair[0].clone(), port.clone()),
                target: (pair[1].clone(), port.clone()),
                size: numbers[0],
                token_size: numbers[1],
                bandwidth: numbers[2],
                medium: None,
            }).collect(),
        };
        let text = write(&configuration).unwrap();
        let back = read("f", text.as_bytes()).unwrap();
        prop_assert_eq!(&back, &configuration);
        prop_assert_eq!(write(&back).unwrap(), text);
    }

    /// A file that was spoilt somewhere is read or refused, and never panics.
    #[test]
    fn spoilt_files_never_panic(at in 0usize..PROFILE.len(), with in any::<u8>(), cut in 0usize..40) {
        let mut bytes = PROFILE.as_bytes().to_vec();
        bytes[at] = with;
        let end = (at + cut).min(bytes.len());
        bytes.drain(at + 1..end.max(at + 1));
        if let Ok(read) = read("f", &bytes) {
            let _ = read.graph("f", 1.0).map(|(g, c, p)| Net::of(&g, &c, &p, Transfers::Free).map(|n| simulate(&n, &n.capacities(), Limits { firings: 10_000 })));
            let _ = write(&read);
        }
    }
}
