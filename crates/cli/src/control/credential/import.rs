//! `bulla credential import`: imports credentials from an export, from a file of CredHub's client, or from a live CredHub through
//! its API.
//!
//! Existing versions with the same value are left unchanged, so an interrupted import can be repeated. Authorities are imported
//! first, one after the other; all other credentials are imported concurrently.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use api::credhub::{
    CertificateHistory, CertificateValue, Certificates, CertificatesQuery, CredentialVersion, CredentialView,
    Data, DataQuery, LookupOutcome, LookupView, NamePermissions, PermissionEntry, SetRequest,
    TransitionalVersion,
};
use clap::{ArgGroup, Args};
use futures_util::stream::{self, StreamExt};
use jiff::Timestamp;
use keys::SecretJson;
use keys::age::{self, AGE_LINE, Identity, Opening};
use reqwest::Method;
use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::export::secret_of;
use super::record::{End, FORMAT, Grant, Line, Record, RecordVersion, parse_credhub_export};
use super::remote::{Failure, IN_FLIGHT, Login, PAGE, Remote, lookup, names_and_ancestors};
use super::store::{CERTIFICATES, DATA, LOOKUP};
use super::transfer::{FailureLine, Progress, failures};
use super::value::VALUE_BYTES_MAX;
use crate::connection::{Client, Output, document_of, read_as, show_one};
use crate::exit::{Exit, Outcome, Problem};

/// Maximum bytes of a line of an export: a value in JSON, with every version.
const LINE_MAX: u64 = 64 * VALUE_BYTES_MAX;
/// Maximum bytes of a file of CredHub's client, which is read as a whole.
const PLAIN_MAX: u64 = 256 * VALUE_BYTES_MAX;

/// Arguments of `bulla credential import`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("source").required(true).args(["file", "from"]))]
pub(super) struct ImportArgs {
    /// Output of `bulla credential export`, or a file of CredHub's client (YAML or JSON)
    file: Option<PathBuf>,
    /// File with the passphrase of the export
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,
    /// File of age identities that can decrypt the export (AGE-SECRET-KEY-1…, one per line)
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    identity_file: Option<PathBuf>,
    /// URL of a live CredHub, or of another Bulla: https://HOST:8844
    #[arg(
        long,
        value_name = "URL",
        requires = "client_name",
        requires = "client_secret_file",
        help_heading = "From a live store"
    )]
    from: Option<String>,
    /// Client name for the login at that CredHub; it needs read permission for all credentials to import
    #[arg(long, value_name = "NAME", requires = "from", help_heading = "From a live store")]
    client_name: Option<String>,
    /// File with the client's secret
    #[arg(long, value_name = "FILE", requires = "from", help_heading = "From a live store")]
    client_secret_file: Option<PathBuf>,
    /// Certificates to trust for that server and its authorization server [default: the system's]
    #[arg(long, value_name = "FILE", requires = "from", help_heading = "From a live store")]
    ca_cert: Option<PathBuf>,
    /// Only credentials below this path
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/",
        requires = "from",
        help_heading = "From a live store"
    )]
    path: String,
    /// Import every version, not only the current ones
    #[arg(long, requires = "from", help_heading = "From a live store")]
    all_versions: bool,
    /// Import permissions that the client may see
    #[arg(long, requires = "from", help_heading = "From a live store")]
    permissions: bool,
    /// Report what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    show: Output,
}

impl ImportArgs {
    pub(super) async fn run(&self, client: &Client) -> Outcome<Exit> {
        let mut import = Import { client, dry_run: self.dry_run, report: Report::default() };
        match (&self.file, &self.from) {
            (Some(file), _) => self.import_from_file(file, &mut import).await?,
            (None, Some(url)) => self.import_from_store(url, &mut import).await?,
            (None, None) => return Err(Problem::usage("nothing to import").hint("give a file, or --from")),
        }
        let report = import.report;
        show_one(&document_of(&report.shown(self.dry_run))?, &self.show)?;
        match report.failed.len() {
            0 => Ok(Exit::Ok),
            many => Err(Problem::new(Exit::Incomplete, format_args!("{many} of the credentials could not be imported"))
                .hint("`failed` shows the reasons; the others were imported, and running the same import again imports \
                 only the missing ones")),
        }
    }

    async fn import_from_store(&self, url: &str, import: &mut Import<'_>) -> Outcome<()> {
        let (Some(name), Some(file)) = (&self.client_name, &self.client_secret_file) else {
            return Err(
                Problem::usage("no client to log in as").hint("give --client-name and --client-secret-file")
            );
        };
        let login = Login {
            url: url.trim_end_matches('/').to_owned(),
            name: name.clone(),
            secret: secret_of(file)?,
            ca_cert: self.ca_cert.clone(),
        };
        let remote = Remote::log_in(login).await?;
        let entries = remote.entries(&self.path).await?;
        let mut progress = Progress::new("read", entries.len());
        for page in entries.chunks(PAGE) {
            let mut records = Vec::with_capacity(page.len());
            for answer in remote.records(page, self.all_versions).await? {
                match answer {
                    Ok(record) => records.push(record),
                    Err(failure) => import.report.failed.push(failure),
                }
            }
            import.put(records).await?;
            progress.at(import.report.read);
        }
        if self.permissions {
            let (grants, unknown) = remote.grants(&names_and_ancestors(&entries)).await;
            import.report.failed.extend(unknown);
            import.grant(grants).await;
        }
        Ok(())
    }

    async fn import_from_file(&self, path: &Path, import: &mut Import<'_>) -> Outcome<()> {
        let wrong = |what: String| {
            Problem::usage(format_args!("{}: {what}; nothing was written", path.display()))
                .hint("give the unchanged exported file, with the --passphrase-file or --identity-file of its encryption")
        };
        // Match any version of the format, so that an unsupported version is reported as such.
        let age = AGE_LINE.trim_end_matches(|letter| letter != '/').as_bytes();
        let mut start = Vec::new();
        open(path)?
            .take(age.len() as u64)
            .read_to_end(&mut start)
            .map_err(|error| wrong(error.to_string()))?;
        if start != age {
            let mut text = Zeroizing::new(String::new());
            let read = open(path)?.take(PLAIN_MAX + 1).read_to_string(&mut text);
            if read.map_err(|error| wrong(error.to_string()))? as u64 > PLAIN_MAX {
                return Err(wrong(format!("larger than {PLAIN_MAX} bytes")));
            }
            let records = parse_credhub_export(&text).map_err(wrong)?;
            for page in records.chunks(PAGE) {
                import.put(page.to_vec()).await?;
            }
            return Ok(());
        }
        let opening = self.opening()?;
        // Read twice: nothing is written before the whole file is verified.
        let end = Lines::open(path, &opening)?.verify().map_err(wrong)?;
        let mut progress = Progress::new("imported", usize::try_from(end.credentials).unwrap_or(usize::MAX));
        let mut lines = Lines::open(path, &opening)?;
        let (mut page, mut grants) = (Vec::with_capacity(PAGE), Vec::new());
        while let Some(line) = lines.next().map_err(wrong)? {
            match line {
                Line::Credential(record) => page.push(record),
                Line::Permission(grant) => grants.push(grant),
                Line::Export(_) | Line::End(_) => {}
            }
            if page.len() == PAGE {
                import.put(std::mem::take(&mut page)).await?;
                progress.at(import.report.read);
            }
        }
        import.put(page).await?;
        import.grant(grants).await;
        Ok(())
    }

    fn opening(&self) -> Outcome<Opening> {
        match (&self.passphrase_file, &self.identity_file) {
            (Some(path), _) => Ok(Opening::Passphrase(secret_of(path)?)),
            (None, Some(path)) => {
                Identity::parse_file(&secret_of(path)?).map(Opening::Identities).map_err(|error| {
                    Problem::usage(format_args!("{}: {error}", path.display()))
                        .hint("`age-keygen` creates one")
                })
            }
            (None, None) => {
                Err(Problem::usage("the file is encrypted").hint("give --passphrase-file or --identity-file"))
            }
        }
    }
}

fn open(path: &Path) -> Outcome<File> {
    File::open(path).map_err(|error| {
        Problem::usage(format_args!("cannot read {}: {error}", path.display()))
            .hint("check the name and its permissions")
    })
}

/// Reader of the decrypted lines of an export.
struct Lines {
    from: BufReader<Box<dyn Read>>,
    number: u64,
}

impl Lines {
    fn open(path: &Path, opening: &Opening) -> Outcome<Self> {
        let file = BufReader::new(open(path)?);
        let opened = age::decrypt(opening, file).map_err(|error| {
            Problem::usage(format_args!("{}: {error}; nothing was written", path.display()))
                .hint("check --passphrase-file or --identity-file, and that the exported file is unchanged")
        })?;
        Ok(Self { from: BufReader::new(Box::new(opened)), number: 0 })
    }

    fn next(&mut self) -> Result<Option<Line>, String> {
        let mut text = Zeroizing::new(Vec::new());
        let length = (&mut self.from).take(LINE_MAX + 1).read_until(b'\n', &mut text);
        let length = length.map_err(|error| error.to_string())?;
        if length == 0 {
            return Ok(None);
        }
        self.number += 1;
        // Do not report the parser's message, because it may contain the line.
        let line = serde_json::from_slice(&text);
        line.map(Some).map_err(|_| format!("line {} is not a line of an export of this version", self.number))
    }

    /// Reads and verifies the whole file: a head, lines, and an end with the counts of credentials and permissions.
    fn verify(mut self) -> Result<End, String> {
        match self.next()? {
            Some(Line::Export(head)) if head.format == FORMAT => {}
            Some(Line::Export(head)) => {
                return Err(format!(
                    "the export has format {}, but this version reads format {FORMAT}",
                    head.format
                ));
            }
            _ => return Err("the encrypted content is not an export".to_owned()),
        }
        let mut counted = End::default();
        let mut ended = None;
        while let Some(line) = self.next()? {
            match (line, &ended) {
                (Line::Credential(record), None) if !record.versions.is_empty() => counted.credentials += 1,
                (Line::Permission(_), None) => counted.permissions += 1,
                (Line::End(end), None) => ended = Some(end),
                _ => return Err(format!("line {} is not allowed at this position", self.number)),
            }
        }
        match ended {
            Some(end) if end == counted => Ok(end),
            Some(_) => Err("the number of lines differs from the number in its last line".to_owned()),
            None => Err("its last line is missing".to_owned()),
        }
    }
}

/// Counts and failures of an import.
#[derive(Default)]
struct Report {
    read: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    versions: u64,
    /// Number of versions that were not imported, because they had expired.
    ended: u64,
    permissions: u64,
    /// Names of imported certificates for which the store refused the name of the signing authority.
    unrelated: Vec<String>,
    failed: Vec<Failure>,
}

impl Report {
    fn shown(&self, dry_run: bool) -> ShownReport<'_> {
        ShownReport {
            dry_run,
            read: self.read,
            created: self.created,
            updated: self.updated,
            unchanged: self.unchanged,
            versions: self.versions,
            ended: self.ended,
            permissions: self.permissions,
            without_authority: &self.unrelated,
            failed: failures(&self.failed),
        }
    }
}

/// A [`Report`] as it is printed.
#[derive(Serialize)]
struct ShownReport<'a> {
    dry_run: bool,
    read: u64,
    created: u64,
    updated: u64,
    unchanged: u64,
    versions: u64,
    ended: u64,
    permissions: u64,
    without_authority: &'a [String],
    failed: Vec<FailureLine<'a>>,
}

/// Result of the import of one credential.
enum ImportOutcome {
    Unchanged,
    /// The credential was written. The fields say whether it was new, how many versions were written, and whether the store refused
    /// the name of its authority.
    Written {
        new: bool,
        versions: u64,
        unrelated: bool,
    },
}

/// An import into the store that `client` is connected to.
struct Import<'a> {
    client: &'a Client,
    dry_run: bool,
    report: Report,
}

impl Import<'_> {
    /// Imports records, without versions that have expired.
    async fn put(&mut self, mut records: Vec<Record>) -> Outcome<()> {
        self.report.read += records.len() as u64;
        let now = Timestamp::now();
        for record in &mut records {
            let versions = record.versions.len();
            record.versions.retain(|version| version.seconds_left(now) != Some(0));
            self.report.ended += (versions - record.versions.len()) as u64;
        }
        records.retain(|record| !record.versions.is_empty());
        if records.is_empty() {
            return Ok(());
        }
        let request = lookup(records.iter().map(|record| record.name.as_str()));
        let existing: LookupView<CredentialView<SecretJson>> =
            self.client.exchange(Method::POST, LOOKUP, &request).await?;
        let (first, rest): (Vec<_>, Vec<_>) =
            records.into_iter().zip(existing.results).partition(|(record, _)| record.authority);
        let (client, dry_run) = (self.client, self.dry_run);
        for (record, existing) in first {
            let outcome = put_missing_versions(client, dry_run, &record, existing).await;
            self.count(record, outcome);
        }
        let writing = rest.into_iter().map(|(record, existing)| async move {
            let outcome = put_missing_versions(client, dry_run, &record, existing).await;
            (record, outcome)
        });
        let mut done = stream::iter(writing).buffer_unordered(IN_FLIGHT);
        while let Some((record, outcome)) = done.next().await {
            self.count(record, outcome);
        }
        Ok(())
    }

    fn count(&mut self, record: Record, outcome: Outcome<ImportOutcome>) {
        match outcome {
            Ok(ImportOutcome::Unchanged) => self.report.unchanged += 1,
            Ok(ImportOutcome::Written { new, versions, unrelated }) => {
                self.report.created += u64::from(new);
                self.report.updated += u64::from(!new);
                self.report.versions += versions;
                self.report.unrelated.extend(unrelated.then_some(record.name));
            }
            Err(problem) => self.report.failed.push(Failure { name: record.name, why: problem.message }),
        }
    }

    /// Grants permissions in addition to the existing ones.
    async fn grant(&mut self, grants: Vec<Grant>) {
        let (client, dry_run) = (self.client, self.dry_run);
        let granting = grants.into_iter().map(|grant| async move {
            let done = if dry_run { Ok(()) } else { permit(client, &grant).await };
            (grant, done)
        });
        let mut done = stream::iter(granting).buffer_unordered(IN_FLIGHT);
        while let Some((grant, done)) = done.next().await {
            match done {
                Ok(()) => self.report.permissions += 1,
                Err(problem) => {
                    let name = format!("{} for {}", grant.path, grant.actor);
                    self.report.failed.push(Failure { name, why: problem.message });
                }
            }
        }
    }
}

async fn permit(client: &Client, grant: &Grant) -> Outcome<()> {
    let entry =
        PermissionEntry { actor: grant.actor.clone(), path: None, operations: grant.operations.clone() };
    let request = NamePermissions { credential_name: grant.path.clone(), permissions: Some(vec![entry]) };
    let body = document_of(&request)?;
    client.send_bytes(Method::POST, "/api/v1/permissions", Some(&body)).await.map(drop)
}

/// Writes the missing versions of a credential. `existing` is the result of looking up the credential in the store; `None` if it does
/// not exist.
async fn put_missing_versions(
    client: &Client,
    dry_run: bool,
    record: &Record,
    existing: Option<LookupOutcome<CredentialView<SecretJson>>>,
) -> Outcome<ImportOutcome> {
    let existing = match existing {
        Some(LookupOutcome::Failed { error }) => return Err(Problem::new(Exit::Refused, error)),
        Some(LookupOutcome::Found(credential)) => Some(credential),
        None => None,
    };
    let is_new = existing.is_none();
    let stored = match (existing, record.versions.len()) {
        (None, _) => Vec::new(),
        (Some(current), 1) => vec![StoredVersion::of(record, current)],
        (Some(_), _) => versions(client, record).await?,
    };
    let stored_count = stored_count(&record.versions, &stored);
    let (old, new) = record.versions.split_at(stored_count);
    // Marking a version as transitional is a separate request. If an earlier import failed before this request, mark the version
    // now.
    let mut unmarked = None;
    for (version, stored) in old.iter().zip(&stored[stored.len() - stored_count..]) {
        if version.transitional {
            unmarked = Some(stored.id).filter(|_| !stored.version.transitional);
        }
    }
    if new.is_empty() && unmarked.is_none() {
        return Ok(ImportOutcome::Unchanged);
    }
    let mut outcome = ImportOutcome::Written { new: is_new, versions: new.len() as u64, unrelated: false };
    if dry_run {
        return Ok(outcome);
    }
    for version in new {
        let (id, related) = set(client, record, version).await?;
        if let ImportOutcome::Written { unrelated, .. } = &mut outcome {
            *unrelated = !related;
        }
        if version.transitional {
            unmarked = Some(id);
        }
    }
    if let Some(id) = unmarked {
        mark_transitional(client, record, id).await?;
    }
    Ok(outcome)
}

/// An existing version, and its id.
struct StoredVersion {
    id: Uuid,
    version: RecordVersion,
}

impl StoredVersion {
    fn of(record: &Record, credential: CredentialView<SecretJson>) -> Self {
        Self { id: credential.version.id, version: RecordVersion::of(&record.kind, credential) }
    }
}

/// Returns how many of the new versions, beginning with the oldest, match the newest stored versions.
fn stored_count(new: &[RecordVersion], stored: &[StoredVersion]) -> usize {
    let fits = |count: &usize| {
        let tail = &stored[stored.len() - count..];
        tail.iter().zip(&new[..*count]).all(|(stored, new)| stored.version.has_same_content(new))
    };
    (0..=new.len().min(stored.len())).rev().find(fits).unwrap_or(0)
}

async fn versions(client: &Client, record: &Record) -> Outcome<Vec<StoredVersion>> {
    let Data::<CredentialView<SecretJson>> { data } =
        client.fetch(DATA, &DataQuery::versions(&record.name, None)).await?;
    Ok(data.into_iter().rev().map(|one| StoredVersion::of(record, one)).collect())
}

/// Sets a version. Returns its id, and whether the name of its authority, if any, was preserved.
async fn set(client: &Client, record: &Record, version: &RecordVersion) -> Outcome<(Uuid, bool)> {
    let put = async |value: SecretJson| -> Outcome<Uuid> {
        let left = version.seconds_left(Timestamp::now());
        let request = SetRequest {
            name: record.name.clone(),
            kind: record.kind.clone(),
            value,
            metadata: version.metadata.clone(),
            // At least 1: the version may expire during the request.
            ttl_seconds: left.map(|left| u32::try_from(left.max(1)).unwrap_or(u32::MAX)),
        };
        let set: CredentialVersion = read_as(&client.submit(Method::PUT, DATA, &request).await?)?;
        Ok(set.id)
    };
    let by = record.signed_by.as_ref().filter(|_| record.kind == "certificate");
    if let (Some(by), Ok(fields)) = (by, version.value.parse::<CertificateValue>()) {
        // Name the authority, so that the store can regenerate the certificate. The store refuses if the authority has changed or
        // is missing.
        let fields = CertificateValue { ca: None, ca_name: Some(by.clone()), ..fields };
        match put(document_of(&fields)?.into()).await {
            Ok(id) => return Ok((id, true)),
            Err(problem) if problem.exit == Exit::Refused => {}
            Err(problem) => return Err(problem),
        }
    }
    Ok((put(version.value.clone()).await?, by.is_none()))
}

/// Marks a version as transitional.
async fn mark_transitional(client: &Client, record: &Record, version: Uuid) -> Outcome<()> {
    let query = CertificatesQuery { name: Some(record.name.clone()), ..CertificatesQuery::default() };
    let Certificates { certificates } = client.fetch(CERTIFICATES, &query).await?;
    let Some(CertificateHistory { id, .. }) = certificates.first() else {
        return Err(Problem::new(
            Exit::Refused,
            format_args!("{} is not a certificate in the credential store", record.name),
        ));
    };
    let path = format!("{CERTIFICATES}/{id}/update_transitional_version");
    let request = TransitionalVersion { version: Some(version.to_string()) };
    client.submit(Method::PUT, &path, &request).await.map(drop)
}
