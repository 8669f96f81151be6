//! Enums that rows carry and that crates above use as they are: the code in the database and the name in JSON.

use coded::{coded, named};

coded! {
    /// State of a managed certificate: the event that it waits for, if any.
    pub enum ManagedState: "certificate state" {
        /// Entered, never issued.
        Pending = 0 => "pending",
        /// A run waits for approval.
        AwaitingApproval = 1 => "awaiting_approval",
        /// A run waits for the agent that holds the key.
        AwaitingCsr = 2 => "awaiting_csr",
        /// A run is with the issuer, or will ask it again.
        Issuing = 3 => "issuing",
        /// Issued; not in place at every target yet.
        Deploying = 4 => "deploying",
        /// Issued, and deployed to its targets, if any.
        Active = 5 => "active",
        /// The last run ended without success. The version issued before is still the current one.
        Failed = 6 => "failed",
        /// The current version is revoked.
        Revoked = 7 => "revoked",
        /// Out of management; kept for the record.
        Archived = 8 => "archived",
    }
}

coded! {
    /// Holder of a managed certificate's private key.
    pub enum KeyHolder: "key location" {
        /// This server, sealed.
        Server = 0 => "server",
        /// The agent that the row names.
        Agent = 1 => "agent",
        /// The key service.
        KeyService = 2 => "key_service",
    }
}

coded! {
    /// Work that a job does.
    pub enum JobKind: "job kind" {
        /// Issues the first version.
        Issuance = 0 => "issuance",
        /// Issues the next version.
        Renewal = 1 => "renewal",
        /// Puts a version in place at an agent's targets.
        Deployment = 2 => "deployment",
        /// Revokes a version.
        Revocation = 3 => "revocation",
    }
}

coded! {
    /// Progress of a job.
    pub enum JobState: "job state" {
        /// Waits for its time, or for a slot.
        Queued = 0 => "queued",
        /// Claimed by a worker, as long as the lease lasts.
        Running = 1 => "running",
        /// Waits for approval.
        AwaitingApproval = 2 => "awaiting_approval",
        /// Waits for the agent's CSR.
        AwaitingCsr = 3 => "awaiting_csr",
        /// Ended with success.
        Done = 4 => "done",
        /// Ended without success.
        Failed = 5 => "failed",
        /// Cancelled.
        Cancelled = 6 => "cancelled",
    }
}

impl JobState {
    /// Whether the job has not ended.
    #[must_use]
    pub fn is_open(self) -> bool {
        self <= Self::AwaitingCsr
    }
}

coded! {
    /// Whether a job needs approval.
    pub enum Consent: "consent" {
        /// No.
        NotNeeded = 0 => "not_needed",
        /// Yes, and it was not given yet. A queued job is not claimed.
        Needed = 1 => "needed",
        /// Approved.
        Given = 2 => "given",
    }
}

coded! {
    /// State of an approval.
    pub enum ApprovalState: "approval state" {
        /// Waits for a decision.
        Open = 0 => "open",
        /// Approved.
        Approved = 1 => "approved",
        /// Rejected.
        Rejected = 2 => "rejected",
        /// Expired without a decision.
        Expired = 3 => "expired",
        /// The job ended without a decision.
        Withdrawn = 4 => "withdrawn",
        /// The plan changed after it was asked for: another approval takes its place.
        Void = 5 => "void",
    }
}

coded! {
    /// Result of a deployment.
    pub enum DeploymentState: "deployment state" {
        /// Not tried yet.
        Waiting = 0 => "waiting",
        /// In place.
        Deployed = 1 => "deployed",
        /// It was in place already.
        Unchanged = 2 => "unchanged",
        /// Failed; the files are as before.
        Failed = 3 => "failed",
        /// Put in place, refused by the service, and taken out again.
        RolledBack = 4 => "rolled_back",
        /// Failed, and the files before could not be put back.
        Broken = 5 => "broken",
        /// Cancelled.
        Cancelled = 6 => "cancelled",
    }
}

coded! {
    /// Severity of a policy violation.
    #[derive(Default)]
    pub enum PolicySeverity: "severity" {
        /// Worth knowing.
        Info = 0 => "info",
        /// To be corrected.
        #[default]
        Warning = 1 => "warning",
        /// To be corrected soon.
        Error = 2 => "error",
        /// To be corrected now.
        Critical = 3 => "critical",
    }
}

coded! {
    /// How far an alert is.
    pub enum AlertState: "alert state" {
        /// Open: nobody acknowledged it.
        Open = 0 => "open",
        /// Acknowledged.
        Acknowledged = 1 => "acknowledged",
        /// Its cause is gone.
        Resolved = 2 => "resolved",
    }
}

coded! {
    /// How far a message about an alert is.
    pub enum DeliveryState: "delivery state" {
        /// It waits for its next attempt.
        Waiting = 0 => "waiting",
        /// Its channel has taken it.
        Sent = 1 => "sent",
        /// No attempt is left.
        Dead = 2 => "dead",
        /// It waits for a digest.
        Held = 3 => "held",
    }
}

named! {
    /// A type of credential.
    pub enum CredentialKind: "credential type" in any case {
        /// A text.
        Value => "value",
        /// Any JSON.
        Json => "json",
        /// A password.
        Password => "password",
        /// A name with a password.
        User => "user",
        /// A certificate with its key and its authority's certificate.
        Certificate => "certificate",
        /// An RSA key pair.
        Rsa => "rsa",
        /// An SSH key pair.
        Ssh => "ssh",
    }
}

named! {
    /// Why a message about an alert is sent.
    pub enum MessageReason: "message reason" {
        /// The alert was raised.
        Raised => "raised",
        /// Nobody took care of it in time.
        Escalated => "escalated",
        /// The alert was resolved.
        Resolved => "resolved",
        /// All of a day; not stored.
        Digest => "digest",
        /// To see whether the channel works; not stored.
        Test => "test",
    }
}
