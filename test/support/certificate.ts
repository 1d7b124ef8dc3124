// A certificate of a test's own authority, made with openssl.

import { execFileSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** In PEM, and the paths of the files. */
type Certificate = Record<'ca' | 'cert' | 'key', string> & {
  files: Record<'ca' | 'cert' | 'key', string>;
};

/** A certificate for these names and addresses, and the authority that signed it; valid for a day. */
export function makeCertificate(
  directory: string,
  { names, addresses = [] }: { names: readonly string[]; addresses?: readonly string[] },
): Certificate {
  const at = (name: string) => join(directory, name);
  const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-noenc'];
  openssl(
    ...['req', '-x509', ...newKey, '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '1'],
    ...['-subj', '/CN=Authority of a test', '-addext', 'basicConstraints=critical,CA:TRUE'],
  );
  openssl('req', ...newKey, '-keyout', at('server.key'), '-out', at('server.csr'), '-subj', '/CN=server');
  const alternatives = [...names.map((name) => `DNS:${name}`), ...addresses.map((one) => `IP:${one}`)];
  writeFileSync(at('server.ext'), `subjectAltName=${alternatives.join(',')}\n`);
  openssl(
    ...['x509', '-req', '-in', at('server.csr'), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-days', '1'],
    ...['-CAcreateserial', '-extfile', at('server.ext'), '-out', at('server.pem')],
  );
  const files = { ca: at('ca.pem'), cert: at('server.pem'), key: at('server.key') };
  const read = (file: string) => readFileSync(file, 'utf8');
  return { files, ca: read(files.ca), cert: read(files.cert), key: read(files.key) };
}
