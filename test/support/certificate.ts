// A certificate of a test's own authority, made with openssl.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** In PEM, and the paths of the files. */
type Certificate = Record<'ca' | 'cert' | 'key', string> & {
  files: Record<'ca' | 'cert' | 'key', string>;
};

/** A certificate with an RSA key that it signs itself, in PEM; valid for a day. */
export function makeSelfSigned(): Record<'cert' | 'key', string> {
  const directory = mkdtempSync(join(tmpdir(), 'trellis-certificate-'));
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const args = [
    '-newkey',
    'rsa:2048',
    '-noenc',
    '-keyout',
    key,
    '-out',
    cert,
    '-subj',
    '/CN=sender',
    '-days',
    '1',
  ];
  execFileSync('openssl', ['req', '-x509', ...args], { stdio: 'pipe' });
  const made = { cert: readFileSync(cert, 'utf8'), key: readFileSync(key, 'utf8') };
  rmSync(directory, { recursive: true });
  return made;
}

/** A certificate for these names and addresses, and the authority that signed it; valid for a day. */
export function makeCertificate(
  directory: string,
  { names, addresses = [] }: { names: readonly string[]; addresses?: readonly string[] },
): Certificate {
  const at = (name: string) => join(directory, name);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc'];
  openssl(
    'req',
    '-x509',
    ...newKey,
    '-keyout',
    at('ca.key'),
    '-out',
    at('ca.pem'),
    '-days',
    '1',
    '-subj',
    '/CN=Authority of a test',
    '-addext',
    'basicConstraints=critical,CA:TRUE',
  );
  openssl('req', ...newKey, '-keyout', at('server.key'), '-out', at('server.csr'), '-subj', '/CN=server');
  const alternatives = [...names.map((name) => `DNS:${name}`), ...addresses.map((one) => `IP:${one}`)];
  writeFileSync(at('server.ext'), `subjectAltName=${alternatives.join(',')}\n`);
  openssl(
    'x509',
    '-req',
    '-in',
    at('server.csr'),
    '-CA',
    at('ca.pem'),
    '-CAkey',
    at('ca.key'),
    '-days',
    '1',
    '-CAcreateserial',
    '-extfile',
    at('server.ext'),
    '-out',
    at('server.pem'),
  );
  const files = { ca: at('ca.pem'), cert: at('server.pem'), key: at('server.key') };
  const read = (file: string) => readFileSync(file, 'utf8');
  return { files, ca: read(files.ca), cert: read(files.cert), key: read(files.key) };
}
