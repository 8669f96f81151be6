//! The filter of certificates for listings and bulk operations.

use api::certificates::CertificateFilter;
use lifecycle::tables::managed::{ManagedFilter, ManagedScope, NamePartSource};

use x509::{Fingerprint, SerialNumber};

use crate::problem::Problem;
use crate::time;

pub(super) fn managed_filter(
    body: CertificateFilter,
    visible_scopes: Option<Vec<ManagedScope>>,
) -> Result<ManagedFilter, Problem> {
    let states = body.status.as_deref().unwrap_or_default();
    let states = states
        .split(',')
        .filter(|word| !word.is_empty())
        .map(|word| word.trim().parse::<lifecycle::state::State>().map_err(Problem::bad_request));
    let tag = body.tag.as_deref().map(|tag| {
        let parts = tag.split_once('=').map(|(tag, value)| (tag.to_owned(), value.to_owned()));
        parts.ok_or_else(|| Problem::bad_request("tag must be NAME=VALUE"))
    });
    let time = |text: Option<String>| text.map(|text| time::parsed(&text)).transpose();
    let (serial, fingerprint) = (body.serial.as_deref(), body.fingerprint.as_deref());
    let serial = serial.map(str::parse::<SerialNumber>).transpose();
    let serial = serial.map_err(|error| Problem::bad_request(format_args!("serial: {error}")))?;
    let fingerprint = fingerprint.map(str::parse::<Fingerprint>).transpose();
    let fingerprint =
        fingerprint.map_err(|error| Problem::bad_request(format_args!("fingerprint: {error}")))?;
    let filter = ManagedFilter {
        states: states.collect::<Result<_, Problem>>()?,
        profile: body.profile,
        within: visible_scopes,
        name_part_source: NamePartSource::Names,
        issuer: body.issuer,
        ca: body.ca,
        owner: body.owner,
        team: body.team,
        environment: body.environment,
        policy: body.policy,
        agent: body.agent,
        tag: tag.transpose()?,
        expires_before_us: time(body.expires_before)?,
        expires_from_us: time(body.expires_after)?,
        contains: body.contains.filter(|text| !text.is_empty()),
        suffix: body.suffix.filter(|text| !text.is_empty()),
        name: body.name,
        serial: serial.map(|serial| serial.to_string()),
        fingerprint: fingerprint.map(|fingerprint| *fingerprint.as_bytes()),
        key_type: body.algorithm,
        finding: body.finding,
    };
    // PostgreSQL rejects texts with NUL, and no stored text contains it.
    let texts = [
        &filter.name,
        &filter.profile,
        &filter.issuer,
        &filter.ca,
        &filter.owner,
        &filter.team,
        &filter.environment,
        &filter.policy,
        &filter.contains,
        &filter.suffix,
        &filter.key_type,
        &filter.finding,
    ];
    let tags = filter.tag.iter().flat_map(|(tag, value)| [tag, value]);
    if texts.into_iter().flatten().chain(tags).any(|text| text.contains('\0')) {
        return Err(Problem::bad_request("a filter contains a NUL character"));
    }
    Ok(filter)
}
