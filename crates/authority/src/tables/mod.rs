//! Storage of the authority: CAs, profiles, issued and revoked certificates, ACME, enrollments.
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

use db::Sends;

pub use acme::Acme;
pub use cas::{
    CAS_MAX, CaCertificateRole, CaCertificateRow, CaRow, CaRows, CaWithKey, Cas, begin_retiring_ca,
    delete_pending_ca, finish_retiring_ca, insert_ca, insert_ca_certificates, install_ca, make_default_ca,
    renew_ca,
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
    Insertion, Issued, IssuedFilter, IssuedOrder, IssuedRow, IssuedSearch, NewIssued, Once, RevocationFacts,
    Source, UsedKey, insert_issued,
};
pub use principals::{marks_of, note_principal};
pub use profiles::{ProfileRow, Profiles, delete_profile, profile_row, put_profile};
pub use revocations::{
    BlockedKey, BuiltCrl, CrlRow, CrlState, CrlStatus, Matched, OcspResponderRow, ResponderStatus,
    RevocationEntry, RevocationMark, RevocationRow, RevocationTarget, Revocations, RevokedRow, block_spki,
    crl_store, crls_begin, note_crl_failure, put_ocsp_responder, revoke, revoke_ids, revoked_by,
};
pub use teams::{OwnedRow, Teams, count_certificate, put_team};
pub use votes::{VoteRow, Votes, approvers_of, put_vote};

/// All statements of these tables, for the test that prepares them on both databases.
#[doc(hidden)]
pub const STATEMENTS: &[Sends] = &[
    acme::SENDS,
    Sends::of(cas::ALL, cas::BULKS),
    Sends::of(&[], principals::BULKS),
    Sends::of(profiles::ALL, &[]),
    Sends::of(issued::insert::ALL, issued::insert::BULKS),
    Sends::of(issued::search::ALL, &[]),
    Sends { both: issued::ALL, sqlite: &[], postgres: &[], bulks: issued::BULKS, composed: issued::composed },
    Sends {
        both: revocations::ALL,
        sqlite: &[],
        postgres: revocations::POSTGRES,
        bulks: revocations::BULKS,
        composed: revocations::composed,
    },
    Sends::of(revocations::crls::ALL, revocations::crls::BULKS),
    Sends::of(revocations::listings::ALL, &[]),
    Sends::of(enrolments::ALL, &[]),
    Sends::of(teams::ALL, teams::BULKS),
    Sends::of(votes::ALL, votes::BULKS),
    Sends::of(changes::ALL, changes::BULKS),
];
