//! The benchmarks of the repository. Each prints ratios against a peer or a hardware limit in the same run. Results, with the
//! arguments used, are in `docs/benchmarks.md`.

use crate::shell::{Failure, cargo, run as run_command};

/// Benchmarks: name, crate, example, and description.
const BENCHES: &[(&str, &str, &str, &str)] = &[
    ("scan", "scan", "probe_cost", "one TLS probe beside one rustls handshake"),
    ("ct", "ct", "ct_match", "matching logged certificates against watched domains"),
    ("revocation", "scan", "revocation", "revocation checks by CRL and OCSP"),
    ("clouds", "cloud_apis", "clouds", "listing simulated clouds within their quotas"),
    ("ownership", "inventory", "ownership_cost", "ownership rules against endpoints"),
    ("issue", "authority", "issue_rate", "certificates issued a second"),
    ("signer", "signer", "apart_rate", "what a signer process costs an issuance"),
    ("acme", "authority", "acme_load", "ACME orders beside step-ca"),
    ("api", "server", "api_load", "API requests over HTTPS at 1k, 100k and 1M rows"),
    ("credentials", "server", "credential_load", "CredHub requests over HTTPS"),
    ("concourse", "client", "concourse", "credential lookups of a pipeline"),
    ("scheduler", "lifecycle", "tick", "one tick of the renewal scheduler"),
    ("signing", "keyless", "signing", "signatures of the key service beside the bare library"),
    ("routing", "keyless", "remote", "signatures routed to a node 100 ms away"),
    ("stage", "keyless", "batches", "batched signatures at the CPU stage"),
    ("batch", "keys", "batch", "eight signatures at a time beside one by one"),
    ("sealed", "keys", "sealed", "sealing and opening keys"),
    ("edge", "edge", "edge_handshakes", "handshakes of the TLS terminator with remote keys"),
    ("proxy", "proxy", "proxy_costs", "proxied requests beside the bare limit"),
    ("rules", "proxy", "rule_costs", "the cost of 10 to 10,000 proxy rules"),
    ("policy", "proxy", "policy_costs", "decisions of the proxy's policy beside a hash lookup"),
    ("scrub", "proxy", "scrub_costs", "the search for injected values in responses"),
    ("leaves", "proxy", "store_costs", "the certificate store of the proxy"),
    ("console", "bulla", "console_pages", "pages of the web console at 1k, 100k and 1M certificates"),
    ("store", "store", "growth", "the inventory at 100,000 endpoints"),
    ("retention", "inventory", "prune", "removing a million observations while a scan runs"),
];

/// Features of the package that an example requires: example and features.
const FEATURES: &[(&str, &str)] = &[("clouds", "aws,azure,gcp")];

/// Runs the named benchmark, or lists all benchmarks.
///
/// # Errors
/// The name is unknown, or the benchmark failed.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        for (name, _, _, what) in BENCHES {
            println!("{name:12} {what}");
        }
        println!(
            "\nRun one with `cargo xtask bench NAME [ARGUMENT ...]`; docs/benchmarks.md has the arguments."
        );
        return Ok(());
    };
    let Some((_, package, example, _)) = BENCHES.iter().find(|(known, ..)| known == name) else {
        return Err(Failure::Usage(format!("unknown benchmark `{name}`; `cargo xtask bench` lists them")));
    };
    let mut bench = cargo(&["run", "--release", "-p", package, "--example", example]);
    for (_, features) in FEATURES.iter().filter(|(of, _)| of == example) {
        bench.args(["--features", features]);
    }
    run_command(bench.arg("--").args(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::root;

    #[test]
    fn every_listed_benchmark_exists() {
        for (name, package, example, _) in BENCHES {
            let folder = root().join("crates").join(package).join("examples");
            let file = folder.join(format!("{example}.rs"));
            assert!(
                file.is_file() || folder.join(example).join("main.rs").is_file(),
                "{name}: {}",
                file.display()
            );
        }
    }
}
