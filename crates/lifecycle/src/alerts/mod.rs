//! Alerts and their channels.
