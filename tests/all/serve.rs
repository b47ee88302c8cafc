//! `flowspace serve`: requests that come one by one, through the program.

use crate::scratch::Scratch;
use serde_json::Value;

const MODEL: [&str; 5] = ["serve", "--workload", "llama3-8b-serving", "--system", "h100-dgx-8"];

fn served(scratch: &Scratch, more: &[&str]) -> Value {
    serde_json::from_str(&scratch.succeed(&[&MODEL, more, &["--format", "json"]].concat())).unwrap()
}

fn number(value: &Value, path: &str) -> f64 {
    value.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path}: {value:#}"))
}

/// The faster requests come, the longer all of them take on one layout; what is answered is what comes while it keeps up, and every run is the same again.
#[test]
fn more_requests_wait_longer() {
    let scratch = Scratch::new("serve_rates");
    let one = ["--rate", "1,4,16", "--count", "400", "--tp", "2", "--pp", "1", "--ep", "1"];
    let found = served(&scratch, &one);
    assert_eq!(found, served(&scratch, &one));
    let loads = found["loads"].as_array().unwrap();
    assert_eq!(loads.len(), 3);
    for pair in loads.windows(2) {
        for time in ["/best/latency_s/mean", "/best/latency_s/p99", "/best/tpot_s/p50", "/best/at_once"] {
            assert!(number(&pair[0], time) < number(&pair[1], time), "{time}");
        }
    }
    for load in loads {
        let (comes, answered) = (number(load, "/best/offered_per_s"), number(load, "/best/answered_per_s"));
        assert!(answered < comes * 1.01, "{comes} {answered}");
        let (p50, p90, p99) =
            (number(load, "/best/ttft_s/p50"), number(load, "/best/ttft_s/p90"), number(load, "/best/ttft_s/p99"));
        assert!(0.0 < p50 && p50 <= p90 && p90 <= p99 && p99 <= number(load, "/best/latency_s/p50"));
    }
}

/// Of a front none is beaten in both, and every layout is in loads.csv; the rates of users are nearly theirs over their latency (Little).
#[test]
fn the_front_of_users_and_chips() {
    let scratch = Scratch::new("serve_front");
    let found = served(&scratch, &["--users", "1..16", "--count", "64", "--out", "served"]);
    let front = found["front"].as_array().unwrap();
    assert!(!front.is_empty());
    for pair in front.windows(2) {
        assert!(number(&pair[0], "/tokens_per_s_user") > number(&pair[1], "/tokens_per_s_user"));
        assert!(number(&pair[0], "/tokens_per_s_chip") < number(&pair[1], "/tokens_per_s_chip"));
    }
    for load in found["loads"].as_array().unwrap() {
        let users = number(load, "/users");
        let (rate, latency) = (number(load, "/best/answered_per_s"), number(load, "/best/latency_s/mean"));
        assert!((rate * latency / users - 1.0).abs() < 0.1, "{users} {rate} {latency}");
        for of in load["served"].as_array().unwrap() {
            assert!(number(of, "/answered_per_s") <= rate * (1.0 + 1e-9));
        }
    }
    let read = |name: &str| scratch.read(&format!("served/{name}"));
    let layouts = found["layouts"].as_u64().unwrap() as usize;
    assert_eq!(read("loads.csv").lines().count(), 1 + 5 * layouts);
    assert_eq!(read("requests.csv").lines().count(), 1 + 5 * 64);
    assert!(read("front.svg").contains("tokens/s of a user"));
}

/// A file of requests is served as it says, whatever the order of its rows; the columns of Azure's traces are the same request by request.
#[test]
fn recorded_requests() {
    let scratch = Scratch::new("serve_recorded");
    let ours = "arrival_s,prompt,generated\n3,700,5\n1.5,4808,10\n1.5,200,1\n";
    let theirs = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,4808,10\n2023-11-16 18:15:46.5,200,1\n2023-11-16 18:15:48.0,700,5\n";
    let of = |name: &str, text: &str| {
        let path = scratch.write(name, text);
        served(&scratch, &["--requests", &path, "--tp", "1", "--pp", "1", "--ep", "1"])
    };
    let (one, other) = (of("ours.csv", ours), of("theirs.csv", theirs));
    let spread = |v: &Value| v.pointer("/loads/0/best/latency_s").cloned();
    assert_eq!(spread(&one), spread(&other));
    assert_eq!(one.pointer("/loads/0/requests"), Some(&Value::from(3)));
    // Prompts that wait for the pieces of others have their first token later than where they are read before the steps of these.
    for reads in ["before", "beside", "pieces"] {
        let found =
            served(&scratch, &["--rate", "30", "--count", "200", "--dp", "1", "--pp", "1", "--prompts-read", reads]);
        assert_eq!(found["prompts_read"], reads);
        assert!(number(&found, "/loads/0/best/busy") <= 1.0 + 1e-9);
    }
}
