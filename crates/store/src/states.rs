//! Enums of stored rows, each with its code in the database and its name in JSON. Crates that depend on this one use the same
//! enums.

use coded::{coded, named};

coded! {
    /// State of a managed certificate, including the event that it waits for, if any.
    pub enum ManagedState: "certificate state" {
        /// The certificate was created but never issued.
        Pending = 0 => "pending",
        /// A run waits for approval.
        AwaitingApproval = 1 => "awaiting_approval",
        /// A run waits for the agent that holds the key.
        AwaitingCsr = 2 => "awaiting_csr",
        /// The issuer is processing a run, or the run will be retried.
        Issuing = 3 => "issuing",
        /// The certificate is issued, but not yet deployed to every target.
        Deploying = 4 => "deploying",
        /// The certificate is issued, and deployed to its targets, if any.
        Active = 5 => "active",
        /// The last run failed. The version issued before is still the current one.
        Failed = 6 => "failed",
        /// The current version is revoked.
        Revoked = 7 => "revoked",
        /// The certificate is no longer managed. Its record is kept.
        Archived = 8 => "archived",
    }
}

coded! {
    /// Holder of a managed certificate's private key.
    pub enum KeyHolder: "key location" {
        /// This server, in sealed form.
        Server = 0 => "server",
        /// An agent. The row contains its id.
        Agent = 1 => "agent",
        /// The key service.
        KeyService = 2 => "key_service",
    }
}

coded! {
    /// Action of a job on a version of a managed certificate.
    pub enum JobKind: "job kind" {
        /// Issues the first version.
        Issuance = 0 => "issuance",
        /// Issues the next version.
        Renewal = 1 => "renewal",
        /// Deploys a version to an agent's targets.
        Deployment = 2 => "deployment",
        /// Revokes a version.
        Revocation = 3 => "revocation",
    }
}

coded! {
    /// Progress of a job, from queued to its final state.
    pub enum JobState: "job state" {
        /// The job waits for its start time, or for a free slot.
        Queued = 0 => "queued",
        /// A worker has claimed the job for the duration of the lease.
        Running = 1 => "running",
        /// The job waits for approval.
        AwaitingApproval = 2 => "awaiting_approval",
        /// The job waits for the agent's CSR.
        AwaitingCsr = 3 => "awaiting_csr",
        /// The job succeeded.
        Done = 4 => "done",
        /// The job failed and is not retried.
        Failed = 5 => "failed",
        /// The job was cancelled.
        Cancelled = 6 => "cancelled",
    }
}

impl JobState {
    /// Returns whether the job has not ended.
    #[must_use]
    pub fn is_open(self) -> bool {
        self <= Self::AwaitingCsr
    }
}

coded! {
    /// Whether a job needs approval, and whether the approval was given.
    pub enum Consent: "consent" {
        /// No approval is needed.
        NotNeeded = 0 => "not_needed",
        /// An approval is needed and not yet given. A queued job is not claimed.
        Needed = 1 => "needed",
        /// The approval was given.
        Given = 2 => "given",
    }
}

coded! {
    /// State of a request for approval: open, decided, or ended without a decision.
    pub enum ApprovalState: "approval state" {
        /// The request waits for a decision.
        Open = 0 => "open",
        /// The approval was given.
        Approved = 1 => "approved",
        /// The approval was rejected.
        Rejected = 2 => "rejected",
        /// The request expired without a decision.
        Expired = 3 => "expired",
        /// The job ended before a decision was made.
        Withdrawn = 4 => "withdrawn",
        /// The plan changed after the request: another approval replaces this one.
        Void = 5 => "void",
    }
}

coded! {
    /// State of the deployment of a certificate to a target.
    pub enum DeploymentState: "deployment state" {
        /// The deployment was not attempted yet.
        Waiting = 0 => "waiting",
        /// The certificate is deployed.
        Deployed = 1 => "deployed",
        /// The certificate was already deployed.
        Unchanged = 2 => "unchanged",
        /// The deployment failed. The files are unchanged.
        Failed = 3 => "failed",
        /// The deployment failed after the files were replaced. The previous files were restored.
        RolledBack = 4 => "rolled_back",
        /// The deployment failed, and the previous files could not be restored.
        Broken = 5 => "broken",
        /// The deployment was cancelled before it was done.
        Cancelled = 6 => "cancelled",
    }
}

coded! {
    /// Severity of a policy violation, from `info` to `critical`.
    #[derive(Default)]
    pub enum PolicySeverity: "severity" {
        /// The violation is for information only.
        Info = 0 => "info",
        /// The violation should be corrected.
        #[default]
        Warning = 1 => "warning",
        /// The violation should be corrected soon.
        Error = 2 => "error",
        /// The violation must be corrected immediately.
        Critical = 3 => "critical",
    }
}

coded! {
    /// State of an alert: open, acknowledged or resolved.
    pub enum AlertState: "alert state" {
        /// The alert is not acknowledged.
        Open = 0 => "open",
        /// A person acknowledged the alert.
        Acknowledged = 1 => "acknowledged",
        /// The cause of the alert ended.
        Resolved = 2 => "resolved",
    }
}

coded! {
    /// State of a message about an alert: waiting, sent, failed, or held for a digest.
    pub enum DeliveryState: "delivery state" {
        /// The message waits for its next attempt.
        Waiting = 0 => "waiting",
        /// The channel accepted the message.
        Sent = 1 => "sent",
        /// The last attempt failed.
        Dead = 2 => "dead",
        /// The message waits for a digest.
        Held = 3 => "held",
    }
}

named! {
    /// Type of a credential, which determines the form of its value.
    pub enum CredentialKind: "credential type" in any case {
        /// A single text.
        Value => "value",
        /// Any JSON value.
        Json => "json",
        /// A password.
        Password => "password",
        /// A user name with a password.
        User => "user",
        /// A certificate with its key and its CA certificate.
        Certificate => "certificate",
        /// An RSA key pair.
        Rsa => "rsa",
        /// An SSH key pair.
        Ssh => "ssh",
    }
}

named! {
    /// Reason for a message about an alert.
    pub enum MessageReason: "message reason" {
        /// The alert was raised.
        Raised => "raised",
        /// The alert was not acknowledged in time.
        Escalated => "escalated",
        /// The alert was resolved.
        Resolved => "resolved",
        /// The daily digest. Messages with this reason are not stored.
        Digest => "digest",
        /// A test of the channel. Messages with this reason are not stored.
        Test => "test",
    }
}
