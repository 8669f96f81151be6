//! ETag and idempotency keys.
