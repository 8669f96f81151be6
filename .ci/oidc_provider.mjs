// An OpenID provider for the login tests: oidc-provider, certified by the OpenID Foundation, with two people and its own
// forms for logging in and consent. Arguments: port, client id, client secret, redirect URI.
import { Provider } from 'oidc-provider';

const [port, client, secret, redirect] = process.argv.slice(2);
const people = { alice: ['pki-admins', 'staff'], bob: ['gardeners'] };
const claims = (id) => ({ sub: id, groups: people[id] ?? [], preferred_username: id, email: `${id}@example.net` });

const provider = new Provider(`http://127.0.0.1:${port}`, {
  clients: [{ client_id: client, client_secret: secret, redirect_uris: [redirect] }],
  claims: { openid: ['sub', 'groups'], profile: ['preferred_username'], email: ['email'] },
  // Claims stand in the ID token, not only at the userinfo endpoint.
  conformIdTokenClaims: false,
  pkce: { required: () => true },
  findAccount: (_, id) => ({ accountId: id, claims: () => claims(id) }),
});
provider.listen(Number(port), '127.0.0.1');
