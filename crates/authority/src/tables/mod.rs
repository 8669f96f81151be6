//! Storage of the authority: CAs, profiles, issued and revoked certificates, ACME, enrolments.
//!
//! Each table group has a handle, created with `Name::of(&store)`. Functions that change rows take the transaction.

pub mod acme;
mod cas;
mod changes;
mod enrolments;
mod issued;
mod principals;
mod profiles;
mod revocations;
mod teams;
mod votes;

use db::ModuleStatements;

pub use acme::Acme;
pub use cas::{
    CAS_MAX, CaCache, CaCertificateRole, CaCertificateRow, CaChoiceRow, CaRow, CaRows, CaWithKey,
    begin_retiring_ca, ca_choices, delete_pending_ca, finish_retiring_ca, insert_ca, insert_ca_certificates,
    install_ca, make_default_ca, renew_ca,
};
pub use changes::{
    ChangeDecision, ChangeRow, ChangeState, Changes, NewChange, SEALED_CHANGES, change_row, decide_change,
    insert_change,
};
pub use enrolments::{
    EnrolmentDecision, EnrolmentPlan, EnrolmentRow, EnrolmentState, Enrolments, NewEnrolment, RecipientRow,
    decide_enrolment, enrolment_plan, insert_enrolment, put_recipient, reopen_enrolment,
};
pub use issued::{
    IdempotencyHashes, Insertion, Issued, IssuedFilter, IssuedOrder, IssuedRow, IssuedSearch, NewIssued,
    RevocationFacts, Source, UsedIdempotencyKey, insert_issued,
};
pub use principals::{marks_of, store_principal_marks};
pub use profiles::{ProfileRow, Profiles, delete_profile, profile_row, put_profile};
pub use revocations::{
    BlockedKey, BuiltCrl, CrlRow, CrlState, CrlStatus, MatchCounts, OcspResponderRow, ResponderStatus,
    RevocationEntry, RevocationFields, RevocationRow, RevocationTarget, Revocations, RevokedRow, block_spki,
    crl_store, crls_begin, note_crl_failure, put_ocsp_responder, revoke, revoke_ids, revoked_by_request,
};
pub use teams::{OwnedRow, Teams, count_certificate, put_team};
pub use votes::{VoteRow, Votes, approvers_of, put_vote};

/// All statements of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[ModuleStatements] = &[
    acme::SENDS,
    ModuleStatements::of(cas::ALL, cas::BULKS),
    ModuleStatements::of(&[], principals::BULKS),
    ModuleStatements::of(profiles::ALL, &[]),
    ModuleStatements::of(issued::insert::ALL, issued::insert::BULKS),
    ModuleStatements::of(issued::search::ALL, &[]),
    ModuleStatements {
        both: issued::ALL,
        sqlite: &[],
        postgres: &[],
        bulks: issued::BULKS,
        composed: issued::composed,
    },
    ModuleStatements {
        both: revocations::ALL,
        sqlite: &[],
        postgres: revocations::POSTGRES,
        bulks: revocations::BULKS,
        composed: revocations::composed,
    },
    ModuleStatements::of(revocations::crls::ALL, revocations::crls::BULKS),
    ModuleStatements::of(revocations::listings::ALL, &[]),
    ModuleStatements::of(enrolments::ALL, &[]),
    ModuleStatements::of(teams::ALL, teams::BULKS),
    ModuleStatements::of(votes::ALL, votes::BULKS),
    ModuleStatements::of(changes::ALL, changes::BULKS),
];
