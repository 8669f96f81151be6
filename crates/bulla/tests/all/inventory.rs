//! The inventory.

use crate::world::{ENDPOINTS, World, describe, run, stderr, stdout};

#[test]
fn inventory_pages_are_complete_and_linked_by_cursor() {
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let whole = world.inventory(&["list", "--all"]);
    let whole = whole["rows"].as_array().unwrap();
    assert_eq!(whole.len(), world.targets().len());
    let (mut paged, mut after) = (Vec::new(), None::<String>);
    loop {
        let mut arguments = vec!["list", "--limit", "7"];
        if let Some(cursor) = &after {
            arguments.extend(["--after", cursor]);
        }
        let page = world.inventory(&arguments);
        paged.extend(page["rows"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(cursor) => after = Some(cursor.to_owned()),
            None => break,
        }
    }
    assert_eq!(&paged, whole);
}

#[test]
fn replaced_certificate_is_recorded_and_reported_by_diff() {
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let (target, host) = {
        let truth = world.fleet().truth().into_iter().next().unwrap();
        (truth.target.clone(), truth.host.clone())
    };
    let old = world.inventory(&["history", &target])["rows"][0]["leaf_sha256"].clone();
    world.fleet().replace_certificate(&host).unwrap();
    world.scan_all(&["--quiet"]);
    let changes = world.inventory(&["diff"]);
    let change = changes["rows"].as_array().unwrap().iter().find(|row| row["endpoint"] == target.as_str());
    let change = change.unwrap_or_else(|| panic!("{target} is not in {changes}"));
    assert_eq!(change["change"], "certificate-changed");
    assert_eq!(change["old_sha256"], old);
    assert_ne!(change["new_sha256"], old);
    let since = world.inventory(&["diff", "--since", "1h", "--all"]);
    assert!(since["rows"].as_array().unwrap().len() > ENDPOINTS, "first sights are changes too");
    let history = world.inventory(&["history", &target]);
    assert_eq!(history["rows"].as_array().unwrap().len(), 2);
}

#[test]
fn inventory_show_prints_a_host_and_a_certificate() {
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let target = world.targets().remove(0);
    let host = run(&mut world.bulla(&["inventory", "show", &target]));
    assert!(host.status.success() && stdout(&host).contains(&target), "{}", describe(&host));
    let listed = world.inventory(&["list", "--limit", "1"]);
    let fingerprint = listed["rows"][0]["certificate"]["fingerprint_sha256"].as_str().unwrap();
    let shown = run(&mut world.bulla(&["inventory", "show", &fingerprint[..16], "--json"]));
    let certificate: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(certificate["fingerprint_sha256"], fingerprint);
    assert!(!certificate["endpoints"].as_array().unwrap().is_empty());
    let unknown = run(&mut world.bulla(&["inventory", "show", "never.example"]));
    assert_eq!(unknown.status.code(), Some(3));
    assert!(stderr(&unknown).contains("hint: "));
}

#[test]
fn inventory_export_prints_each_certificate_once_as_pem() {
    let world = World::healthy();
    let output = run(&mut world.scan(&["--include-pem", "--output", "jsonl", &world.targets().remove(0)]));
    let line: serde_json::Value = serde_json::from_str(stdout(&output).lines().next().unwrap()).unwrap();
    let leaf = line["chain"][0]["pem"].as_str().unwrap_or_else(|| panic!("{line}")).to_owned();
    assert!(leaf.starts_with("-----BEGIN CERTIFICATE-----\n"), "{leaf}");
    world.scan_all(&["--quiet"]);
    let export = |what: &[&str]| stdout(&run(&mut world.bulla(&[&["inventory", "export"], what].concat())));
    let blocks = |pem: &str| -> Vec<String> {
        pem.split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned).collect()
    };
    let all = blocks(&export(&[]));
    let distinct: std::collections::HashSet<_> = all.iter().collect();
    assert!(all.len() >= ENDPOINTS && distinct.len() == all.len(), "{} of {}", distinct.len(), all.len());
    assert!(all.contains(&leaf));
    assert_eq!(blocks(&export(&[&world.targets().remove(0)]))[0], leaf);
    let fingerprint = line["chain"][0]["fingerprint_sha256"].as_str().unwrap();
    assert_eq!(export(&[fingerprint]), leaf);
}

#[test]
fn scan_again_scans_every_known_endpoint() {
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let output = run(&mut world.scan(&["--again", "--output", "jsonl"]));
    assert!(output.status.success(), "{}", describe(&output));
    let endpoints = stdout(&output).lines().filter(|line| line.contains("\"type\":\"endpoint\"")).count();
    assert_eq!(endpoints, world.targets().len());
    let scans = world.inventory(&["scans"]);
    assert_eq!(scans["rows"].as_array().unwrap().len(), 2);
    let issuers = world.inventory(&["issuers"]);
    assert!(!issuers["rows"].as_array().unwrap().is_empty());
}

#[test]
fn data_folder_is_accessible_only_by_its_owner() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let mode = |name: &str| std::fs::metadata(world.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("data"), 0o700);
    assert_eq!(mode("data/inventory.db"), 0o600);
}

/// A day in microseconds.
const DAY: i64 = 86_400_000_000;

/// Runs `bulla inventory prune`.
fn prune(world: &World, arguments: &[&str]) -> std::process::Output {
    run(world.bulla(&["inventory", "prune"]).args(arguments))
}

#[test]
fn pruned_scans_are_refused_by_diff_and_summarised_by_history() {
    let world = World::healthy();
    for _ in 0..3 {
        world.scan_all(&["--quiet"]);
    }
    let all = world.targets().len();
    let counted = prune(&world, &["--older-than", "0s", "--dry-run", "--json"]);
    let counted: serde_json::Value = serde_json::from_slice(&counted.stdout).unwrap();
    assert_eq!(
        (&counted["observations"], &counted["scans"], &counted["scans_removed"], &counted["dry_run"]),
        (&all.into(), &1.into(), &1.into(), &true.into())
    );
    let scans = world.inventory(&["scans"]);
    let id = |at: usize| scans["rows"][at]["scan"].as_str().unwrap();
    let target = world.targets().remove(0);
    assert_eq!(world.inventory(&["history", &target])["rows"].as_array().unwrap().len(), 3);

    let pruned = prune(&world, &["--older-than", "0s"]);
    assert!(
        stdout(&pruned).starts_with(&format!("pruned: {all} observations of 1 scan")),
        "{}",
        describe(&pruned)
    );
    let repeated = prune(&world, &["--older-than", "0s"]);
    assert!(stdout(&repeated).starts_with("nothing to prune"), "{}", describe(&repeated));

    let history = world.inventory(&["history", &target]);
    let rows = history["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{history}");
    assert_eq!((&rows[2]["change"], &rows[2]["observations"]), (&"pruned".into(), &1.into()));
    assert_eq!(rows[2]["leaf_sha256"], rows[1]["leaf_sha256"]);
    let table = run(&mut world.bulla(&["inventory", "history", &target]));
    assert!(stdout(&table).contains("1 observation since "), "{}", describe(&table));
    let csv = run(&mut world.bulla(&["inventory", "history", &target, "--output", "csv"]));
    let columns: Vec<usize> = stdout(&csv).lines().map(|line| line.matches(',').count()).collect();
    assert_eq!(columns, [14; 4], "{}", describe(&csv));

    let left = world.inventory(&["scans"]);
    let rows = left["rows"].as_array().unwrap();
    assert!(rows.len() == 2 && rows.iter().all(|row| row["pruned_at"].is_null()), "{left}");
    let old = run(&mut world.bulla(&["inventory", "diff", id(2), id(0)]));
    assert_eq!(old.status.code(), Some(2), "{}", describe(&old));
    assert!(stderr(&old).contains(&format!("scan {} is not stored", id(2))), "{}", describe(&old));
    let since = run(&mut world.bulla(&["inventory", "diff", "--since", "1d"]));
    let text = stderr(&since);
    assert!(since.status.code() == Some(2) && text.contains("were pruned on"), "{}", describe(&since));
    let later = text.split("list changes since ").nth(1).unwrap().split(' ').next().unwrap();
    // The time that the error names.
    world.inventory(&["diff", "--since", later]);
    world.inventory(&["diff"]);
}

#[test]
fn a_scan_prunes_what_is_older_than_the_setting() {
    let world = World::healthy();
    for _ in 0..3 {
        world.scan_all(&["--quiet"]);
    }
    let file = world.path("data/inventory.db");
    let age = |days: i64| {
        for statement in [
            "UPDATE observations SET scan_id = scan_id - {}",
            "UPDATE endpoints SET last_scan_id = last_scan_id - {}",
            "UPDATE scans SET id = id - {}, started_at = started_at - {}, finished_at = finished_at - {}",
        ] {
            store::testing::execute(&file, &statement.replace("{}", &(days * DAY).to_string()));
        }
    };
    age(80);
    world.scan_all(&["--quiet"]);
    let pruned = |world: &World| -> Vec<bool> {
        let scans = world.inventory(&["scans"]);
        scans["rows"].as_array().unwrap().iter().map(|row| row["pruned_at"].is_string()).collect()
    };
    assert_eq!(pruned(&world), [false; 4], "the default is 90 days");
    age(20);
    let scanned = run(world.scan(&["@targets.txt", "--quiet"]).env("BULLA_INVENTORY_OBSERVATIONS_DAYS", "0"));
    assert!(scanned.status.success(), "{}", describe(&scanned));
    assert_eq!(pruned(&world), [false; 5], "0 keeps them for ever");
    world.scan_all(&["--quiet"]);
    assert_eq!(pruned(&world), [false; 3], "no observation of the three old scans was left");

    let off = run(world.bulla(&["inventory", "prune"]).env("BULLA_INVENTORY_OBSERVATIONS_DAYS", "0"));
    assert_eq!(off.status.code(), Some(2));
    assert!(stderr(&off).contains("--older-than 90d"), "{}", describe(&off));
}

#[test]
fn a_pruned_scan_is_not_resumed() {
    let world = World::healthy();
    world.scan_all(&["--quiet"]);
    let file = world.path("data/inventory.db");
    store::testing::execute(&file, "UPDATE scans SET state = 'interrupted'");
    // Of one target: the interrupted scan stays, as the newest one of its targets.
    let target = world.targets().remove(0);
    let one = run(&mut world.scan(&[target.as_str(), "--quiet"]));
    assert!(one.status.success(), "{}", describe(&one));
    assert!(prune(&world, &["--older-than", "0s"]).status.success());
    let resumed = run(&mut world.scan(&["--resume"]));
    assert_eq!(resumed.status.code(), Some(2), "{}", describe(&resumed));
    assert!(
        stderr(&resumed).contains("cannot be resumed: its observations were pruned on"),
        "{}",
        describe(&resumed)
    );
}
