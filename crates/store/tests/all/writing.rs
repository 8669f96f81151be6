//! Tests of the writer: back-pressure, retries, no lost and no duplicate observations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use store::testing::Cluster;
use store::{Fault, OnFlush, Status, Store, StoreError, StoreOptions, Writer, WriterOptions};
use uuid::Uuid;

use testbed::tables::{DAY, NOW, World, answered, certificate, silent};

/// Longer than any test machine needs, so that no test depends on timing.
const PATIENT: Duration = Duration::from_secs(600);

fn options(rows_max: usize) -> WriterOptions {
    WriterOptions {
        rows_max,
        queue_rows_max: rows_max,
        flush_interval: Duration::from_millis(1),
        retry_timeout: PATIENT,
        on_flush: None,
    }
}

pub(crate) async fn writer_stores_all_rows_before_finishing(world: World) {
    let scan = world.scan().await;
    let (row_count, flushed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (rows_reported, flushes_reported) = (row_count.clone(), flushed.clone());
    let on_flush = OnFlush(Arc::new(move |rows, _| {
        rows_reported.fetch_add(rows, Ordering::SeqCst);
        flushes_reported.fetch_add(1, Ordering::SeqCst);
    }));
    let watched = WriterOptions { on_flush: Some(on_flush), ..options(16) };
    let (sender, writer) = Writer::start(world.store.clone(), scan.id, watched);
    let leaf = certificate("a", "CN=CA", NOW + DAY);
    for n in 0..100 {
        sender.send(scan.leaf_observation(&format!("h{n}"), &leaf)).await.unwrap();
    }
    let totals = writer.finish().await.unwrap();
    assert_eq!((totals.stored, totals.recorded.inserted, totals.recorded.new_certificates), (100, 100, 2));
    assert!((7..=100).contains(&totals.batches), "{}", totals.batches);
    let row_count = (row_count.load(Ordering::SeqCst), flushed.load(Ordering::SeqCst) as u64);
    assert_eq!(row_count, (100, totals.batches));
    assert_eq!(store::Scans::of(&world.store).get(scan.id).await.unwrap().unwrap().observations, 100);
    // After the writer has ended, sending fails.
    assert!(sender.send(scan.silent("late")).await.is_err());
}

pub(crate) async fn full_channel_applies_backpressure_to_senders(world: World) {
    let scan = world.scan().await;
    let (sender, writer) = Writer::start(world.store.clone(), scan.id, options(4));
    let producers: Vec<_> = (0..8)
        .map(|p| {
            let (sender, at) = (sender.clone(), scan.at);
            tokio::spawn(async move {
                for n in 0..50 {
                    sender.send(silent(&format!("h{p}-{n}"), at)).await.unwrap();
                }
            })
        })
        .collect();
    for producer in producers {
        producer.await.unwrap();
    }
    let totals = writer.finish().await.unwrap();
    assert_eq!(totals.stored, 400);
    assert!(totals.batches >= 100, "no transaction holds more than four rows: {}", totals.batches);
}

pub(crate) async fn writer_retries_after_a_crash_without_duplicates(world: World) {
    for fault in [Fault::BeforeCommit, Fault::AfterCommit] {
        let scan = world.scan().await;
        world.fail_next(fault);
        let (sender, writer) = Writer::start(world.store.clone(), scan.id, options(8));
        for n in 0..20 {
            sender.send(scan.silent(&format!("h{n}"))).await.unwrap();
        }
        drop(sender);
        let totals = writer.finish().await.unwrap();
        assert_eq!((totals.stored, totals.retries), (20, 1), "{fault:?}");
        let row = store::Scans::of(&world.store).get(scan.id).await.unwrap().unwrap();
        assert_eq!(row.observations, 20, "{fault:?}");
    }
    crate::recording::check_references(&world).await;
}

pub(crate) async fn write_failure_reports_the_number_of_rows_not_stored(world: World) {
    let (sender, writer) = Writer::start(world.store.clone(), Uuid::now_v7(), options(8));
    sender.send(silent("a", NOW)).await.unwrap();
    sender.closed().await;
    let error = writer.finish().await.unwrap_err();
    assert_eq!((error.not_stored, error.totals.stored), (1, 0));
    assert!(matches!(error.source, StoreError::UnknownScan(_)));

    // With a retry timeout of zero, a transient error ends the writer too.
    let scan = world.scan().await;
    world.fail_next(Fault::BeforeCommit);
    let impatient = WriterOptions { retry_timeout: Duration::ZERO, ..options(8) };
    let (sender, writer) = Writer::start(world.store.clone(), scan.id, impatient);
    sender.send(silent("a", NOW)).await.unwrap();
    sender.closed().await;
    assert_eq!(writer.finish().await.unwrap_err().not_stored, 1);
}

pub(crate) async fn reopened_database_contains_the_stored_rows(world: World) {
    let scan = world.scan().await;
    scan.record(&[scan.leaf_observation("a", &certificate("a", "CN=CA", NOW + DAY))]).await;
    let second = Store::open(&world.url).await.unwrap();
    assert_eq!(
        store::Inventory::of(&second).summary(NOW, DAY).await.unwrap(),
        store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap()
    );
    assert_eq!(store::Inventory::of(&second).summary(NOW, DAY).await.unwrap().observations, 1);
}

/// The disk becomes full: the writer waits, reports it, and stores everything once there is space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_waits_while_the_disk_is_full_and_loses_nothing() {
    let world =
        World::sqlite_with(StoreOptions { sqlite_pages_max: Some(450), ..StoreOptions::default() }).await;
    let scan = world.scan().await;
    let (sender, writer) = Writer::start(world.store.clone(), scan.id, options(50));
    let mut status = writer.status();
    let at = scan.at;
    let feeding = tokio::spawn(async move {
        for n in 0..2_000_i64 {
            let leaf = certificate(&format!("host-{n}.example"), "CN=CA", NOW + n);
            sender.send(answered(&format!("host-{n}.example"), &leaf, at)).await.unwrap();
        }
    });
    let waiting = status.wait_for(|status| matches!(status, Status::Waiting { .. })).await.unwrap().clone();
    assert!(
        matches!(&waiting, Status::Waiting { error, .. } if error.contains("free some space")),
        "{waiting:?}"
    );
    let before = writer.totals().stored;
    assert!(before < 2_000);
    assert!(!feeding.is_finished(), "the senders wait with the writer");
    world.store.set_sqlite_pages_max(1_000_000).await.unwrap();
    feeding.await.unwrap();
    let totals = writer.finish().await.unwrap();
    assert_eq!((totals.recorded.inserted, totals.recorded.duplicates), (2_000, 0));
    assert!(matches!(*status.borrow(), Status::Healthy));
    crate::recording::check_references(&world).await;
}

/// PostgreSQL's error for a full disk (53100) is mapped to the same error as SQLite's. A probe detects when there is space again.
pub(crate) async fn server_out_of_disk_space_is_a_full_disk_error(world: World) {
    if !world.store.is_postgres() {
        return;
    }
    let full = "-- full\nDO $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$";
    world.store.check_space().await.unwrap();
    let error = world.store.execute(full, Vec::new()).await.unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert!(error.is_transient());
    let text = error.to_string();
    assert!(
        text.contains("the disk of the database server") && text.contains("could not extend file"),
        "{text}"
    );
    let in_transaction = world
        .store
        .write("full", move |tx| Box::pin(async move { tx.execute(full, Vec::new()).await }))
        .await
        .unwrap_err();
    assert!(matches!(in_transaction, StoreError::Full { .. }), "{in_transaction:?}");
    // The probe writes a row, which succeeds.
    world.store.check_space().await.unwrap();
    world.store.check_space().await.unwrap();
}

/// Set in a child process: the SQLite file that the child writes until it is killed.
const CHILD_FILE: &str = "BULLA_STORE_TEST_CHILD_FILE";
const CHILD_SCAN: Uuid = Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001);

/// Runs only as the child process of the next test.
#[tokio::test]
async fn child_that_records_until_it_is_killed() {
    let Some(file) = std::env::var_os(CHILD_FILE) else { return };
    let store = Store::open(&store::StoreUrl::sqlite(file)).await.unwrap();
    store::Scans::of(&store).begin(CHILD_SCAN, NOW, "{}").await.unwrap();
    for batch in 0.. {
        let rows: Vec<_> = (0..10)
            .map(|n| {
                let host = format!("host-{batch}-{n}.example");
                answered(&host, &certificate(&host, "CN=CA", NOW + n), NOW)
            })
            .collect();
        store::Scans::of(&store).record(CHILD_SCAN, &rows).await.unwrap();
        println!("stored {batch}");
    }
}

/// After `kill -9` all acknowledged batches are stored, no batch is stored partly, and the scan can continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_loses_no_acknowledged_batch() {
    use std::io::BufRead;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("inventory.db");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "writing::child_that_records_until_it_is_killed", "--nocapture"])
        .env(CHILD_FILE, &file)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut acknowledged = 0;
    for line in output.lines().map_while(Result::ok) {
        if let Some((_, batch)) = line.rsplit_once("stored ") {
            acknowledged = batch.parse::<u64>().unwrap() + 1;
            if acknowledged == 25 {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    assert!(acknowledged >= 25);

    let url = store::StoreUrl::sqlite(&file);
    let store = Store::open(&url).await.unwrap();
    let open = store::Scans::of(&store).latest_unfinished().await.unwrap().unwrap();
    assert_eq!(open.id, CHILD_SCAN);
    assert!(open.observations >= acknowledged * 10, "{} of {acknowledged} batches", open.observations);
    assert_eq!(open.observations % 10, 0, "a batch is stored whole or not at all");
    let scanned =
        testbed::walk!(1_000, |after, size| store::Scans::of(&store).endpoints(CHILD_SCAN, after, size));
    assert_eq!(scanned.len() as u64, open.observations);
    let second = [answered("host-0-0.example", &certificate("host-0-0.example", "CN=CA", NOW), NOW)];
    assert_eq!(store::Scans::of(&store).record(CHILD_SCAN, &second).await.unwrap().duplicates, 1);
}

/// Such databases are rejected with a specific error before anything is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newer_altered_and_foreign_databases_are_rejected() {
    let world = World::sqlite().await;
    let change =
        |sql: &str| rusqlite::Connection::open(world.sqlite_path()).unwrap().execute_batch(sql).unwrap();
    change("INSERT INTO schema_migrations VALUES (99, 'future', 'x', 0)");
    Store::open(&world.url).await.expect("a migration that expands leaves us what we need");
    change("UPDATE schema_compatibility SET oldest = 99");
    let error = Store::open(&world.url).await.err().unwrap();
    assert!(matches!(error, StoreError::TooNew { found: 99, .. }), "{error}");
    assert!(error.to_string().contains("upgrade Bulla"), "{error}");
    change("DELETE FROM schema_migrations WHERE version = 99; UPDATE schema_migrations SET checksum = 'x'");
    assert!(matches!(
        Store::open(&world.url).await.err().unwrap(),
        StoreError::MigrationChanged { version: 1, .. }
    ));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "these are notes and no database at all, however long they may be".repeat(20))
        .unwrap();
    let error = Store::open(&store::StoreUrl::sqlite(&path)).await.err().unwrap();
    assert!(matches!(error, StoreError::Open { .. }), "{error}");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("these are notes"));
}

/// PostgreSQL stops and restarts: the writer waits, reports it, and loses or duplicates nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_waits_for_a_database_restart_and_loses_nothing() {
    let cluster = Arc::new(tokio::task::spawn_blocking(Cluster::start).await.unwrap());
    let world = World::postgres_on_cluster(Arc::clone(&cluster)).await;
    let scan = world.scan().await;
    let (sender, writer) = Writer::start(world.store.clone(), scan.id, options(50));
    let mut status = writer.status();
    let at = scan.at;
    let feed = |sender: store::Sender, from: i64, to: i64| async move {
        for n in from..to {
            let leaf = certificate(&format!("host-{n}.example"), "CN=CA", NOW + n);
            sender.send(answered(&format!("host-{n}.example"), &leaf, at)).await.unwrap();
        }
    };
    feed(sender.clone(), 0, 500).await;
    cluster.stop();
    let feeding = tokio::spawn(feed(sender, 500, 1_000));
    status.wait_for(|status| matches!(status, Status::Waiting { .. })).await.unwrap();
    assert!(writer.totals().stored < 1_000);
    tokio::task::spawn_blocking({
        let cluster = Arc::clone(&cluster);
        move || cluster.resume()
    })
    .await
    .unwrap();
    feeding.await.unwrap();
    let totals = writer.finish().await.unwrap();
    assert_eq!(totals.stored, 1_000);
    assert_eq!(store::Scans::of(&world.store).get(scan.id).await.unwrap().unwrap().observations, 1_000);
    crate::recording::check_references(&world).await;
}

/// A connection that is lost between two reads causes no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_is_retried_after_a_lost_connection() {
    let world = World::postgres().await;
    let cluster = Cluster::shared();
    let scan = world.scan().await;
    scan.record(&[scan.silent("a")]).await;
    assert_eq!(store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap().endpoints, 1);
    let own = "pid <> pg_backend_pid() AND datname = ";
    let database = world.url.to_string().split('?').next().unwrap().rsplit('/').next().unwrap().to_owned();
    let kill =
        format!("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {own} '{database}'");
    assert!(cluster.psql("postgres", &kill));
    assert_eq!(store::Inventory::of(&world.store).summary(NOW, DAY).await.unwrap().endpoints, 1);
}

/// Permanent errors are reported immediately and without the password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_connection_errors_are_reported_without_the_password() {
    let cluster = tokio::task::spawn_blocking(Cluster::shared).await.unwrap();
    let missing = cluster.database().to_string();
    for (url, output) in [
        (missing.replace("/bulla_", "/none_").replace("bulla@", "bulla:secret@"), "does not exist"),
        ("postgres://bulla:secret@127.0.0.1:1/none".to_owned(), "127.0.0.1:1/none"),
        (format!("{missing}&sslmode=require"), "TLS"),
    ] {
        let address: store::StoreUrl =
            url.replacen("postgres://bulla@/", "postgres://bulla:secret@/", 1).parse().unwrap();
        let error = Store::open(&address).await.err().unwrap();
        let text = format!("{error} {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(matches!(error, StoreError::Open { .. }), "{text}");
        assert!(text.contains(output) && !text.contains("secret"), "{text}");
    }
}

/// libpq's `sslmode` determines how much of the server certificate is verified.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sslmode_determines_tls_and_certificate_verification() {
    let (certificate, key) = store::testing::localhost_certificate();
    let cluster = Arc::new(tokio::task::spawn_blocking(Cluster::start).await.unwrap());
    let port = cluster.enable_tls(&certificate, &key);
    cluster.stop();
    tokio::task::spawn_blocking({
        let cluster = Arc::clone(&cluster);
        move || cluster.resume()
    })
    .await
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let roots = |name: &str, pem: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        format!("sslrootcert={}", path.display())
    };
    let ours = roots("ours.pem", &certificate);
    let theirs = roots("theirs.pem", &store::testing::localhost_certificate().0);
    let empty = roots("empty.pem", "nothing");
    for (host, parameters, expected) in [
        ("localhost", "sslmode=disable".to_owned(), Some(false)),
        ("localhost", "sslmode=prefer".to_owned(), Some(true)),
        ("localhost", String::new(), Some(true)),
        ("127.0.0.1", "sslmode=require".to_owned(), Some(true)),
        ("localhost", format!("sslmode=verify-full&{ours}"), Some(true)),
        ("127.0.0.1", format!("sslmode=verify-full&{ours}"), None),
        ("127.0.0.1", format!("sslmode=verify-ca&{ours}"), Some(true)),
        ("localhost", format!("sslmode=verify-ca&{theirs}"), None),
        ("localhost", format!("sslmode=require&{theirs}"), None),
        ("localhost", "sslmode=verify-full".to_owned(), None),
        ("localhost", format!("sslmode=verify-full&{empty}"), None),
    ] {
        let url = format!("postgres://bulla@{host}:{port}/postgres?{parameters}");
        let opened = Store::open(&url.parse().unwrap()).await;
        let encrypted = match &opened {
            Ok(_) => Some(cluster.psql(
                "postgres",
                "DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                 WHERE ssl AND application_name = 'bulla') THEN RAISE 'plain'; END IF; END $$",
            )),
            Err(_) => None,
        };
        assert_eq!(encrypted, expected, "{url}: {:?}", opened.as_ref().err());
        drop(opened);
        // The next iteration must count only its own connections.
        assert!(cluster.psql(
            "postgres",
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'bulla'",
        ));
    }
}
