// Drives a server through the types that openapi-typescript made of its description: URL, token, request (PKCS #10).
import createClient from 'openapi-fetch';
import type { paths } from './bulla.js';

declare const process: { argv: string[]; exit(code: number): never };
declare const console: { log(text: string): void; error(...values: unknown[]): void };

const [, , url, token, csr] = process.argv;

function want(condition: unknown, ...values: unknown[]): asserts condition {
  if (!condition) {
    console.error(...values);
    process.exit(1);
  }
}

const client = createClient<paths>({ baseUrl: url!, headers: { Authorization: `Bearer ${token}` } });

const owner = await client.POST('/api/v1/owners', { body: { name: 'typescript' } });
want(owner.data?.name === 'typescript', owner);
const owners = await client.GET('/api/v1/owners', { params: { query: { limit: 1 } } });
want(owners.data?.items.length === 1, owners);
const missing = await client.GET('/api/v1/owners/{name}', { params: { path: { name: 'nobody' } } });
want(missing.error?.status === 404, missing);

const issued = await client.POST('/api/v1/profiles/{name}/certificates', {
  params: { path: { name: 'default' } },
  body: { csr: csr! },
});
want(issued.data && issued.data.chain.startsWith('-----BEGIN'), issued);
const revoked = await client.POST('/api/v1/revocations', { body: { certificate: issued.data.id, reason: 'superseded' } });
want(revoked.data?.count === 1, revoked);
const gone = await client.DELETE('/api/v1/owners/{name}', { params: { path: { name: 'typescript' } } });
want(gone.response.status === 204, gone);
console.log('TypeScript: a client of openapi-typescript and openapi-fetch works');
