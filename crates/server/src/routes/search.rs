//! Search over certificates, endpoints, owners, teams, CAs and credentials.
//!
//! Each kind needs a few index probes that read a bounded number of rows, so that the time does not grow with the tables. A kind is
//! searched only if the caller may list it. Certificates are checked individually against the caller's grants.

mod digits;

use api::path::segment;
use api::search::{HitView, SearchQuery, SearchView};
use authority::Authority;
use authority::issue::{IssuedRecord, Source};
use authority::tables::{Issued, IssuedSearch};
use axum::extract::State as With;
use lifecycle::Lifecycle;
use lifecycle::managed::ManagedCertificate;
use lifecycle::tables::managed::ManagedSearch;
use lifecycle::tables::people::PeopleKind;
use store::{FoundEndpoint, Inventory, Store, StoreError};
use x509::{Fingerprint, SerialNumber, SpkiHash};

use crate::access::{Caller, Permission};
use crate::credhub::CredHub;
use crate::extract::{Json, Query};
use crate::problem::Problem;
use crate::routes::authorities::object_of;
use crate::routes::certificates::may_see;
use crate::routes::credhub::principal::requester;
use crate::routing::{Access, Api, routes};
use crate::state::State;
use crate::time;
use digits::HexDigits;

/// Default number of hits of each kind.
const LIMIT_DEFAULT: u32 = 10;
/// Maximum hits of each kind.
const LIMIT_MAX: u32 = 50;
/// Allowed length of a query, in characters. Shorter queries match too much; a DNS name has at most 253.
const QUERY_CHARS: std::ops::RangeInclusive<usize> = 2..=253;
/// Minimum characters of a query that is searched within names: the length of a trigram.
const PART_CHARS_MIN: usize = 3;
/// Maximum certificates that are checked for a caller who may not see all of them.
const CHECKED_MAX: usize = 500;
/// Hexadecimal digits of a serial number of 16 bytes.
const SERIAL_DIGITS: usize = 32;
/// Number of issued certificates that are read for each hit. Most certificates that are read may belong to managed certificates,
/// which are not shown here.
const EXAMINED_PER_HIT: usize = 10;

pub(crate) fn routes() -> Api {
    Api::area("search").route(Access::known(), routes!(search))
}

/// Quality of a search hit, best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum MatchKind {
    Exact,
    Prefix,
    Part,
}

impl MatchKind {
    /// Returns how a text matches a query, both in lower case.
    fn of(text: &str, query: &str) -> Self {
        match text {
            text if text == query => Self::Exact,
            text if text.starts_with(query) => Self::Prefix,
            _ => Self::Part,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Prefix => "prefix",
            Self::Part => "part",
        }
    }
}

/// The kinds of results, in the order in which equally good hits are listed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Kind {
    Certificate,
    Endpoint,
    Owner,
    Team,
    Authority,
    Credential,
    Issued,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Certificate => "certificate",
            Self::Endpoint => "endpoint",
            Self::Owner => "owner",
            Self::Team => "team",
            Self::Authority => "authority",
            Self::Credential => "credential",
            Self::Issued => "issued",
        }
    }
}

/// The hits of one request.
struct SearchHits {
    /// The query, trimmed.
    query: String,
    /// The query in lower case.
    low: String,
    digits: Option<HexDigits>,
    limit: usize,
    found: Vec<(MatchKind, Kind, HitView)>,
    more: bool,
}

impl SearchHits {
    fn of(query: &SearchQuery) -> Result<Self, Problem> {
        let text = query.q.trim();
        if !QUERY_CHARS.contains(&text.chars().count()) || text.contains('\0') {
            return Err(Problem::bad_request(format_args!(
                "q must have {} to {} characters",
                QUERY_CHARS.start(),
                QUERY_CHARS.end()
            )));
        }
        let limit = query.limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(Problem::bad_request(format_args!("limit must be 1 to {LIMIT_MAX}, not {limit}")));
        }
        Ok(Self {
            query: text.to_owned(),
            low: text.to_lowercase(),
            digits: HexDigits::of(text),
            limit: limit as usize,
            found: Vec::new(),
            more: false,
        })
    }

    /// Returns the number of hits of a kind so far.
    fn count(&self, kind: Kind) -> usize {
        self.found.iter().filter(|(_, of, _)| *of == kind).count()
    }

    /// Adds a hit, unless it already exists or its kind has reached the limit.
    fn add(&mut self, how: MatchKind, kind: Kind, mut hit: HitView) {
        if self.found.iter().any(|(_, of, known)| *of == kind && known.id == hit.id) {
            return;
        }
        if self.count(kind) >= self.limit {
            self.more = true;
            return;
        }
        hit.how = how.name().to_owned();
        hit.kind = kind.name().to_owned();
        self.found.push((how, kind, hit));
    }

    fn view(mut self) -> SearchView {
        self.found.sort_by(|(how, kind, hit), (other_how, other_kind, other)| {
            (how, kind, &hit.name).cmp(&(other_how, other_kind, &other.name))
        });
        SearchView { hits: self.found.into_iter().map(|(_, _, hit)| hit).collect(), more: self.more }
    }
}

/// Creates a hit without the fields that [`SearchHits::add`] sets.
fn hit(id: impl ToString, name: impl ToString, matched: &str, href: String) -> HitView {
    HitView {
        kind: String::new(),
        id: id.to_string(),
        name: name.to_string(),
        matched: matched.to_owned(),
        how: String::new(),
        status: None,
        not_after: None,
        href,
    }
}

/// Searches names, serial numbers, fingerprints, key hashes, endpoints, owners, teams, CAs and credential paths.
///
/// Returns only objects that the caller may see. Exact matches come first, then prefixes, then other parts of names.
#[utoipa::path(get, path = "/api/v1/search", operation_id = "search", params(SearchQuery),
    responses((status = 200, body = SearchView)))]
async fn search(
    With(state): With<State>,
    caller: Caller,
    Query(query): Query<SearchQuery>,
) -> Result<Json<SearchView>, Problem> {
    let (store, components) = (state.store(), state.components());
    let mut hits = SearchHits::of(&query)?;
    if let Some(lifecycle) = &components.certificates {
        if caller.has_permission(Permission::CertificateRead) {
            managed(&mut hits, lifecycle, &caller).await?;
        }
        if caller.has_permission_everywhere(Permission::PeopleRead) {
            people(&mut hits, lifecycle).await?;
        }
    }
    if let Some(issuance) = &components.issuance {
        if caller.has_permission(Permission::CertificateRead) {
            issued(&mut hits, store, &caller).await?;
        }
        if caller.has_permission_everywhere(Permission::CaRead) {
            authorities(&mut hits, &issuance.authority).await?;
        }
    }
    if caller.has_permission_everywhere(Permission::InventoryRead) {
        endpoints(&mut hits, store).await?;
    }
    if let Some(hub) = &components.credentials {
        add_credential_hits(&mut hits, hub, &caller).await?;
    }
    Ok(Json(hits.view()))
}

/// Returns the maximum number of certificates to check against the caller's grants.
fn certificate_check_limit(hits: &SearchHits, caller: &Caller) -> usize {
    if caller.has_permission_everywhere(Permission::CertificateRead) { hits.limit + 1 } else { CHECKED_MAX }
}

async fn managed(hits: &mut SearchHits, lifecycle: &Lifecycle, caller: &Caller) -> Result<(), Problem> {
    let low = hits.low.clone();
    let mut steps = vec![ManagedSearch::NamePrefix(hits.query.clone())];
    if low != hits.query {
        steps.push(ManagedSearch::NamePrefix(low.clone()));
    }
    if let Some(digits) = &hits.digits {
        steps.push(ManagedSearch::Serial(digits.text().to_owned()));
        let (from, to) = digits.range();
        steps.push(ManagedSearch::Fingerprint(from, to));
    }
    steps.push(ManagedSearch::NameSuffix(low.clone()));
    if low.chars().count() >= PART_CHARS_MIN {
        steps.push(ManagedSearch::Part(low));
    }
    let most = certificate_check_limit(hits, caller);
    for step in steps {
        // There are enough hits: the remaining searches are skipped.
        if hits.count(Kind::Certificate) >= hits.limit {
            hits.more = true;
            break;
        }
        let found = lifecycle.search(&step, most).await?;
        hits.more |= found.len() >= most;
        for certificate in found.iter().filter(|one| may_see(caller, Permission::CertificateRead, one)) {
            let (how, matched) = matched(&step, certificate, hits);
            let href = format!("/api/v1/certificates/{}", certificate.id);
            let view = HitView {
                status: Some(certificate.state.name().to_owned()),
                not_after: certificate.current.as_ref().map(|current| time::shown(current.not_after_us)),
                ..hit(certificate.id, &certificate.name, matched, href)
            };
            hits.add(how, Kind::Certificate, view);
        }
    }
    Ok(())
}

/// Returns how and by which property the search found the certificate.
fn matched(
    step: &ManagedSearch,
    certificate: &ManagedCertificate,
    hits: &SearchHits,
) -> (MatchKind, &'static str) {
    match step {
        // A serial number of full length is an exact match.
        ManagedSearch::Serial(digits) if digits.len() >= SERIAL_DIGITS => (MatchKind::Exact, "serial"),
        ManagedSearch::Serial(_) => (MatchKind::Prefix, "serial"),
        ManagedSearch::Fingerprint(..) => {
            let whole = certificate.current.as_ref().map(|current| current.fingerprint.to_string());
            let exact = hits.digits.as_ref().map(|digits| digits.text().to_owned()) == whole;
            (if exact { MatchKind::Exact } else { MatchKind::Prefix }, "fingerprint")
        }
        _ => {
            let names = certificate.names.iter().map(ToString::to_string);
            let names = names.chain([certificate.name.to_lowercase()]);
            (names.map(|name| MatchKind::of(&name, &hits.low)).min().unwrap_or(MatchKind::Part), "name")
        }
    }
}

async fn issued(hits: &mut SearchHits, store: &Store, caller: &Caller) -> Result<(), Problem> {
    let most = certificate_check_limit(hits, caller);
    let mut steps = Vec::new();
    if let Some(digits) = &hits.digits {
        let (from, to) = digits.serial_range();
        steps.push((IssuedSearch::Serial(from, to), "serial", most));
        let (from, to) = digits.range();
        steps.push((IssuedSearch::Sha256(from.clone(), to.clone()), "fingerprint", most));
        steps.push((IssuedSearch::Key(from, to), "key", most));
    }
    steps.push((
        IssuedSearch::Name(hits.low.clone()),
        "name",
        most.saturating_mul(EXAMINED_PER_HIT).min(CHECKED_MAX),
    ));
    for (step, matched, most) in steps {
        let found = Issued::of(store).search(&step, most).await?;
        hits.more |= found.len() >= most;
        for record in found {
            // A match by name shows the managed certificate only, not each of its versions.
            let hidden = matched == "name" && record.source == Source::Lifecycle;
            if !hidden && caller.may(Permission::CertificateRead, object_of(&record)).is_ok() {
                add_issued(hits, &record, matched);
            }
        }
    }
    Ok(())
}

fn add_issued(hits: &mut SearchHits, record: &IssuedRecord, matched: &'static str) {
    let text = match matched {
        "serial" => SerialNumber::from_content(&record.serial).to_string(),
        "fingerprint" => Fingerprint::from_bytes(record.sha256).to_string(),
        "key" => SpkiHash::from_bytes(record.spki_sha256).to_string(),
        _ => record.subject.trim_start_matches("CN=").to_lowercase(),
    };
    let query = hits.digits.as_ref().map_or(hits.low.as_str(), HexDigits::text);
    let how = MatchKind::of(&text, query);
    let name = if record.subject.is_empty() {
        SerialNumber::from_content(&record.serial).to_string()
    } else {
        record.subject.clone()
    };
    let view = HitView {
        status: record.revocation.as_ref().map(|_| "revoked".to_owned()),
        not_after: Some(time::shown(record.not_after_us)),
        ..hit(record.id, name, matched, format!("/api/v1/issued/{}", record.id))
    };
    hits.add(how, Kind::Issued, view);
}

async fn people(hits: &mut SearchHits, lifecycle: &Lifecycle) -> Result<(), Problem> {
    for (of, kind, path) in
        [(PeopleKind::Owner, Kind::Owner, "owners"), (PeopleKind::Team, Kind::Team, "teams")]
    {
        for name in lifecycle.search_people(of, &hits.low, hits.limit + 1).await? {
            let how = MatchKind::of(&name.to_lowercase(), &hits.low);
            let href = format!("/api/v1/{path}/{}", segment(&name));
            hits.add(how, kind, hit(&name, &name, "name", href));
        }
    }
    Ok(())
}

async fn authorities(hits: &mut SearchHits, authority: &Authority) -> Result<(), Problem> {
    for ca in authority.all_cas().await? {
        let (name, subject) = (ca.name.to_lowercase(), ca.certificate.subject.text.to_lowercase());
        let (serial, fingerprint) =
            (ca.certificate.serial.to_string(), ca.certificate.fingerprint.to_string());
        let digits = hits.digits.as_ref().map(|digits| digits.text().to_owned());
        let begins = |text: &str| digits.as_ref().is_some_and(|digits| text.starts_with(digits.as_str()));
        let (how, matched) = if name.contains(&hits.low) || subject.contains(&hits.low) {
            (MatchKind::of(&name, &hits.low), "name")
        } else if begins(&serial) {
            (MatchKind::Prefix, "serial")
        } else if begins(&fingerprint) {
            (MatchKind::Prefix, "fingerprint")
        } else {
            continue;
        };
        let not_after = Some(time::shown(ca.certificate.not_after.0.saturating_mul(1_000_000)));
        let href = format!("/api/v1/authorities/{}", ca.id);
        let view =
            HitView { status: Some(ca.state.to_string()), not_after, ..hit(ca.id, &ca.name, matched, href) };
        hits.add(how, Kind::Authority, view);
    }
    Ok(())
}

async fn endpoints(hits: &mut SearchHits, store: &Store) -> Result<(), Problem> {
    for endpoint in Inventory::of(store).search(&hits.low, hits.limit + 1).await? {
        let how = MatchKind::of(&endpoint.host, &hits.low);
        add_endpoint(hits, how, "name", &endpoint);
    }
    endpoints_of_certificate(hits, store).await
}

/// Searches for endpoints whose chain contains the certificate with this fingerprint, or with the only fingerprint that begins
/// with these digits.
async fn endpoints_of_certificate(hits: &mut SearchHits, store: &Store) -> Result<(), Problem> {
    let Some(digits) = hits.digits.as_ref().map(|digits| digits.text().to_owned()) else { return Ok(()) };
    let inventory = Inventory::of(store);
    let certificate = match inventory.certificate(&digits).await {
        Err(StoreError::AmbiguousFingerprint(_)) => {
            hits.more = true;
            None
        }
        other => other?,
    };
    let Some(certificate) = certificate else { return Ok(()) };
    let how = MatchKind::of(&Fingerprint::from_bytes(certificate.sha256).to_string(), &digits);
    let page = inventory.endpoints_of_certificate(&certificate.sha256, None, hits.limit + 1).await?;
    for row in page.rows {
        let endpoint = FoundEndpoint {
            host: row.endpoint.host,
            port: row.endpoint.port,
            outcome: row.outcome,
            leaf_not_after_us: row.leaf.map_or(i64::MAX, |leaf| leaf.not_after_us),
        };
        add_endpoint(hits, how, "fingerprint", &endpoint);
    }
    Ok(())
}

fn add_endpoint(hits: &mut SearchHits, how: MatchKind, matched: &str, endpoint: &FoundEndpoint) {
    let host_port = format!("{}:{}", endpoint.host, endpoint.port);
    let href = format!("/api/v1/inventory?host={}", segment(&endpoint.host));
    let seen = endpoint.leaf_not_after_us != i64::MAX;
    let view = HitView {
        status: Some(endpoint.outcome.to_string()),
        not_after: seen.then(|| time::shown(endpoint.leaf_not_after_us)),
        ..hit(&host_port, &host_port, matched, href)
    };
    hits.add(how, Kind::Endpoint, view);
}

async fn add_credential_hits(hits: &mut SearchHits, hub: &CredHub, caller: &Caller) -> Result<(), Problem> {
    let path = format!("/{}", hits.low.trim_start_matches('/'));
    let found = hub.credentials().names_with_prefix(&requester(hub, caller), &path, hits.limit + 1).await;
    for credential in found.map_err(Problem::internal)? {
        let href = format!("/api/v1/data?name={}", segment(&credential.name));
        let how = MatchKind::of(&credential.name.to_lowercase(), &path);
        let view = HitView {
            not_after: time::maybe_shown(credential.not_after_us),
            ..hit(&credential.name, &credential.name, "name", href)
        };
        hits.add(how, Kind::Credential, view);
    }
    Ok(())
}
