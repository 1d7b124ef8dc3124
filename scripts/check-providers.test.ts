import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startSandbox } from '../sandbox/main.ts';

let directory: string;
let sandbox: Awaited<ReturnType<typeof startSandbox>>;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-check-providers-'));
  sandbox = await startSandbox({ port: 0, dataDir: directory });
});
after(async () => {
  await sandbox.close();
  await rm(directory, { recursive: true });
});

const definition = (change: (text: string) => string = (text) => text) =>
  change(`display_name: Sandbox
categories: [other]
docs: https://example.com/docs
auth_mode: OAUTH2
issuer: { url: "${sandbox.url}", iss_in_callback: required, jwks_url: "${sandbox.url}/oauth2/v3/certs" }
authorization: { url: "${sandbox.url}/o/oauth2/v2/auth" }
token: { url: "${sandbox.url}/token" }
revocation: { url: "${sandbox.url}/revoke", unit: token }
userinfo: { url: "${sandbox.url}/v1/userinfo" }
api: { base_url: https://api.example.com }
`);

/** The command, for one definition: its exit code and its lines. */
async function check(text: string): Promise<{ code: number; lines: string[] }> {
  const folder = await mkdtemp(join(directory, 'providers-'));
  await writeFile(join(folder, 'one.yaml'), text);
  const script = join(import.meta.dirname, 'check-providers.ts');
  return new Promise((resolve) =>
    execFile(process.execPath, [script, '--directory', folder], (error, stdout) =>
      resolve({ code: error === null ? 0 : Number(error.code), lines: stdout.trim().split('\n') }),
    ),
  );
}

test('a definition that agrees with the published metadata passes', async () => {
  const { code, lines } = await check(definition());
  assert.deepEqual(lines, [
    '1 definitions compared, 0 differences; 0 providers publish no metadata at a known address.',
  ]);
  assert.equal(code, 0);
});

test('each difference is named with both values and the document, and the exit code is 1', async () => {
  const { url } = sandbox;
  const { code, lines } = await check(
    definition((text) =>
      text
        .replace(
          `${url}/token"`,
          `${url}/oauth2/v4/token", auth_method: private_key_jwt, client_assertion: {}`,
        )
        .replace(`${url}/revoke`, `${url}/revocation`),
    ),
  );
  const document = `${url}/.well-known/openid-configuration`;
  assert.equal(code, 1);
  assert.deepEqual(lines.slice(0, -1), [
    `one: token.url is ${url}/oauth2/v4/token, but ${document} has ${url}/token`,
    `one: revocation.url is ${url}/revocation, but ${document} has ${url}/revoke`,
    `one: token.auth_method is private_key_jwt, but ${document} has client_secret_post, client_secret_basic`,
  ]);
});

test('without any document nothing was compared, which is no success', async () => {
  const { code, lines } = await check(
    `display_name: X\ncategories: [other]\ndocs: https://example.com\nauth_mode: OAUTH2_CC\ntoken: { url: "${sandbox.url.replace(/\d+$/, '1')}/token" }\napi: { base_url: https://api.example.com }\n`,
  );
  assert.match(lines.at(-1) ?? '', /^0 definitions compared, 0 differences; 1 providers/);
  assert.equal(code, 1);
});
