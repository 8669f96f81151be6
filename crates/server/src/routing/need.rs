//! Requirements of a route on its caller.

use http::Method;

use crate::access::Permission;

/// Who may call a route.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Need {
    /// Anybody, known or not.
    Nothing,
    /// Any authenticated caller.
    Caller,
    /// Callers with this permission.
    Permission(Permission),
}

/// Who may call an operation of a face that is not the API's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FaceNeed {
    /// Anybody, known or not.
    Nothing,
    /// The credential is in the request: a login, a token that is good for one reading.
    OwnCredential,
    /// A known caller.
    Caller,
    /// A caller with a permission of the credential store at the path of what is asked for, or `credential.manage`.
    AtPath,
    /// Anybody on this machine.
    Loopback,
    /// A caller with `credential.manage`, on this machine.
    LoopbackManager,
    /// A caller with `credential.manage`.
    Manager,
}

/// What a route needs and allows. Made from a [`Permission`], [`Access::open`] or [`Access::known`].
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub(super) need: Need,
    pub(super) scoped: bool,
    pub(super) streams: bool,
    pub(super) body_max: Option<usize>,
    pub(super) foreign_query: bool,
    pub(super) dangerous: bool,
}

impl Access {
    const fn of(need: Need) -> Self {
        Self { need, scoped: false, streams: false, body_max: None, foreign_query: false, dangerous: false }
    }

    /// For anybody, known or not.
    #[must_use]
    pub const fn open() -> Self {
        Self::of(Need::Nothing)
    }

    /// For any authenticated caller, without a permission.
    #[must_use]
    pub const fn known() -> Self {
        Self::of(Need::Caller)
    }

    /// For who holds the permission everywhere (scope `any`).
    #[must_use]
    pub const fn needs(permission: Permission) -> Self {
        Self::of(Need::Permission(permission))
    }

    /// For who holds the permission in whatever scope: the handler asks [`Caller::may`](crate::access::Caller::may)
    /// for the thing at hand, or narrows its listing by [`Caller::reach`](crate::access::Caller::reach). A handler
    /// that does neither is answered 500 in its stead.
    #[must_use]
    pub const fn scoped(mut self) -> Self {
        self.scoped = true;
        self
    }

    /// The answer has no end of its own (events, exports): no ETag, no time limit, no idempotency key.
    #[must_use]
    pub const fn streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// The query is another program's, which may add parameters: unknown ones are ignored, not refused.
    #[must_use]
    pub const fn foreign_query(mut self) -> Self {
        self.foreign_query = true;
        self
    }

    /// A session may do this only within 15 minutes after its person proved who they are. Changes by a
    /// [dangerous permission](Permission::is_dangerous) are so without being marked.
    #[must_use]
    pub const fn dangerous(mut self) -> Self {
        self.dangerous = true;
        self
    }

    /// Whether a session needs a recent proof of who its person is.
    pub(super) fn needs_recent_proof(&self, method: &Method) -> bool {
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        self.dangerous || changes && matches!(self.need, Need::Permission(one) if one.is_dangerous())
    }

    /// Bodies of at most so many bytes, instead of the server's limit.
    #[must_use]
    pub const fn body_max(mut self, bytes: usize) -> Self {
        self.body_max = Some(bytes);
        self
    }
}

impl From<Permission> for Access {
    fn from(permission: Permission) -> Self {
        Self::needs(permission)
    }
}
