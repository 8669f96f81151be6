//! Each output format, parsed again.

use std::collections::BTreeSet;

use fleet::{Mix, Plan};
use serde_json::Value;

use crate::world::{ENDPOINTS, World, describe, run, stderr, stdout};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn json_output_has_every_endpoint_with_its_certificate() {
    let world = World::healthy();
    let output = world.scan_all(&["--output", "json", "--no-store"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let observations = document["observations"].as_array().unwrap();
    let seen: BTreeSet<_> = observations.iter().map(|o| o["endpoint"].as_str().unwrap().to_owned()).collect();
    assert_eq!(seen, world.targets().into_iter().collect());
    for observation in observations {
        assert_eq!(observation["outcome"], "answered", "{observation}");
        assert_eq!(observation["findings"].as_array().unwrap().len(), 0, "{observation}");
        assert_eq!(observation["trust"]["verdict"], "trusted", "{observation}");
        assert_eq!(observation["tls"]["resumed"], false);
        let leaf = &observation["chain"][0];
        for field in ["fingerprint_sha256", "serial", "not_after", "names", "key", "signature_algorithm"] {
            assert!(!leaf[field].is_null(), "{field} of {leaf}");
        }
    }
    assert_eq!(document["summary"]["endpoints"], observations.len());
    assert_eq!(document["summary"]["interrupted"], false);
}

#[test]
fn jsonl_output_has_a_type_on_each_line() {
    let world = World::healthy();
    let output = world.scan_all(&["--output", "jsonl", "--no-store"]);
    let lines = lines(&stdout(&output));
    let of = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert_eq!(of("endpoint"), world.targets().len());
    assert_eq!(of("summary"), 1);
    assert_eq!(lines.last().unwrap()["type"], "summary");
}

/// Without the flag no revocation is checked. With the flag the verdict is in the output and in the inventory.
#[test]
fn revocation_is_checked_only_on_request() {
    let plan = Plan {
        endpoints: ENDPOINTS,
        mix: Mix::Healthy,
        dead_fraction: 0.0,
        revocation: true,
        ..Plan::default()
    };
    let world = World::new(&plan);
    let truth = world.fleet().truth();
    let revoked: BTreeSet<_> = truth.into_iter().filter(|t| t.revoked).map(|t| t.target).collect();
    assert!(!revoked.is_empty());
    let quiet = stdout(&world.scan_all(&["--output", "jsonl", "--no-store"]));
    assert!(!quiet.contains("revocation") && world.fleet().revocation().unwrap().counts().requests == 0);

    let output = run(world.scan(&["@targets.txt"]).args([
        "--revocation",
        "crl",
        "--output",
        "jsonl",
        "--fail-on",
        "critical",
    ]));
    assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
    let lines = lines(&stdout(&output));
    let endpoints: Vec<_> = lines.iter().filter(|line| line["type"] == "endpoint").collect();
    assert_eq!(endpoints.len(), world.targets().len());
    for line in &endpoints {
        let endpoint = line["endpoint"].as_str().unwrap();
        let leaf = &line["revocation"][0];
        let expected = if revoked.contains(endpoint) { "revoked" } else { "good" };
        assert_eq!(leaf["verdict"], expected, "{endpoint}: {leaf}");
        assert_eq!(leaf["certificate"], line["chain"][0]["fingerprint_sha256"]);
        let found = line["findings"].as_array().unwrap().iter().any(|f| f["code"] == "endpoint.revoked");
        assert_eq!(found, revoked.contains(endpoint), "{endpoint}");
    }
    let one = revoked.first().unwrap();
    let shown = stdout(&run(&mut world.bulla(&["inventory", "show", one])));
    assert!(shown.contains("endpoint.revoked"), "{shown}");
}

#[test]
fn csv_output_has_a_stable_header_and_equal_field_counts() {
    let world = World::healthy();
    let text = stdout(&world.scan_all(&["--output", "csv", "--no-store"]));
    let records = records(&text);
    assert_eq!(records[0].join(","), include_str!("csv_header.txt").trim());
    assert_eq!(records.len() - 1, world.targets().len());
    for record in &records {
        assert_eq!(record.len(), records[0].len(), "{record:?}");
    }
}

/// Parses CSV by RFC 4180, without a library.
fn records(text: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted => {
                assert_eq!(characters.next(), Some('\n'));
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            other => field.push(other),
        }
    }
    assert!(field.is_empty() && record.is_empty() && !quoted, "the last record ends");
    records
}

#[test]
fn html_report_loads_no_external_resources() {
    let world = World::healthy();
    world.scan_all(&["--output", "html", "--output-file", "report.html", "--no-store"]);
    let page = std::fs::read_to_string(world.path("report.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for outside in ["src=\"http", "href=\"http", "url(http", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
    for target in world.targets() {
        assert!(page.contains(&target), "{target}");
    }
    assert!(page.matches("<svg").count() >= 4);
}

#[test]
fn table_ends_with_the_summary_and_has_no_colors_in_a_pipe() {
    let world = World::healthy();
    let table = stdout(&world.scan_all(&["--limit", "5", "--no-store"]));
    assert!(table.contains("35 less urgent") || ENDPOINTS != 40, "{table}");
    assert!(table.contains(" scanned     40 endpoints in ") || ENDPOINTS != 40, "{table}");
    assert!(table.contains("nothing (--no-store)"), "{table}");
    assert!(!table.contains('\x1b'));
    let coloured = stdout(&world.scan_all(&["--color", "always", "--no-store"]));
    assert!(coloured.contains('\x1b'));
    let quiet = stdout(&world.scan_all(&["--quiet", "--no-store"]));
    assert!(!quiet.contains("scanned"), "{quiet}");
}

#[test]
fn targets_are_read_from_stdin_and_invalid_ones_are_reported() {
    let world = World::healthy();
    let target = world.targets().remove(0);
    std::fs::write(world.path("some.txt"), format!("# ours\n{target}\nnot a target\n{target}\n")).unwrap();
    let input = std::fs::File::open(world.path("some.txt")).unwrap();
    let output = run(world.scan(&["-", "--output", "jsonl", "--no-store"]).stdin(input));
    assert_eq!(output.status.code(), Some(3), "{}", describe(&output));
    let lines = lines(&stdout(&output));
    assert_eq!(lines[0]["endpoint"], target.as_str());
    let summary = lines.last().unwrap();
    assert_eq!(summary["invalid_targets"], 1);
    assert_eq!(summary["repeated_targets"], 1);
    assert!(crate::world::stderr(&output).contains("not a target"), "{}", describe(&output));
}

#[test]
fn metrics_file_is_complete_and_leaves_no_partial_file() {
    let world = World::healthy();
    world.scan_all(&["--metrics-file", "bulla.prom", "--no-store"]);
    let text = std::fs::read_to_string(world.path("bulla.prom")).unwrap();
    assert!(text.contains(&format!("\nbulla_scan_answered_endpoints {}\n", world.targets().len())), "{text}");
    assert!(
        text.contains("bulla_scan_finding_endpoints{code=\"certificate.expired\",severity=\"critical\"} 0\n")
    );
    assert!(!world.path("bulla.prom.partial").exists());
}

#[test]
fn terminal_output_is_colored_unless_no_color_is_set() {
    let world = World::healthy();
    let on_terminal = |variable: (&str, &str)| {
        let target = world.targets().remove(0);
        let command = format!(
            "{} scan {target} --no-store --no-system-roots --ca roots.pem --dns {}",
            env!("CARGO_BIN_EXE_bulla"),
            world.fleet().dns(),
        );
        let mut script = std::process::Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
        script
            .current_dir(world.path("."))
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .env(variable.0, variable.1);
        let output = script.output().expect("apt-get install -y bsdutils");
        assert!(output.status.success(), "{}", describe(&output));
        stdout(&output)
    };
    // Colors of the table. The progress bar on standard error is cleared, and may use others.
    let coloured = |text: &str| text.contains("\x1b[32m") || text.contains("\x1b[2m");
    assert!(coloured(&on_terminal(("LANG", "C.UTF-8"))));
    assert!(!coloured(&on_terminal(("NO_COLOR", "1"))));
}

#[test]
fn liveness_scan_prints_no_certificate_and_stores_nothing() {
    let world = World::healthy();
    let output = run(&mut world.scan(&["@targets.txt", "--liveness", "--output", "jsonl"]));
    assert!(output.status.success(), "{}", describe(&output));
    let lines = lines(&stdout(&output));
    assert_eq!(lines.len(), world.targets().len());
    for line in lines {
        assert_eq!((&line["type"], &line["alive"]), (&"liveness".into(), &true.into()), "{line}");
        assert!(line.get("chain").is_none() && line.get("certificate").is_none(), "{line}");
    }
    assert!(!world.path("data").exists());
}

#[test]
fn repeated_liveness_scan_resumes_tls_sessions() {
    /// Number of repeated probes. A late ticket is not waited for, so one repetition is not enough on a loaded machine.
    const LOOKS: usize = 5;
    let world = World::healthy();
    let target = world.targets().remove(0);
    let output = run(world
        .scan(&["--liveness", "--in-flight", "1", "--output", "jsonl"])
        .args(std::iter::repeat_n(&target, LOOKS)));
    assert!(output.status.success(), "{}", describe(&output));
    let handshakes: Vec<_> = lines(&stdout(&output)).iter().map(|line| line["handshake"].clone()).collect();
    assert_eq!(handshakes.len(), LOOKS);
    assert_eq!(handshakes[0], "full", "{handshakes:?}");
    let resumed = handshakes.iter().filter(|handshake| *handshake == "resumed").count() as u64;
    assert!(resumed > 0, "{handshakes:?}");
    // The server's own count.
    assert_eq!(world.fleet().counters().handshakes_resumed, resumed);
}

#[test]
fn international_server_name_is_converted_to_punycode() {
    let world = World::healthy();
    let truth = world.fleet().truth().into_iter().next().unwrap();
    let target = format!("{}:{}", truth.addresses.first().unwrap(), truth.port);
    let output =
        run(&mut world.scan(&[&target, "--sni", "B\u{fc}cher.example", "--no-store", "--output", "json"]));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["observations"][0]["server_name"], "xn--bcher-kva.example", "{}", describe(&output));
}

#[test]
fn log_lines_in_a_pipe_are_not_colored() {
    let world = World::healthy();
    let dns = world.fleet().dns().to_string();
    let target = world.targets().remove(0);
    let scan = ["scan", &target, "--no-system-roots", "--no-store", "--dns", &dns];
    let output = run(&mut world.bulla(&scan));
    let message = stderr(&output);
    assert!(message.contains("no trust anchors are configured") && !message.contains('\x1b'), "{message:?}");
}
