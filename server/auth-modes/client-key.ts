/**
 * Clients that authenticate by a key instead of a shared secret: by a signed assertion (`private_key_jwt`, RFC 7523 §2.2)
 * or by a certificate of the TLS connection (`tls_client_auth`, RFC 8705 §2). The client secret is the PEM text of the
 * private key, with its certificate where one is needed.
 *
 * Does not own: reading private keys (`signing-key.ts`), other client authentication (`oauth2-request.ts`).
 */
import { hash, X509Certificate } from 'node:crypto';
import * as oauth from 'oauth4webapi';
import type { ClientCertificate } from '../outbound/outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { readSigningKey, type SigningKey } from './signing-key.ts';

type TokenRules = NonNullable<ProviderDefinition['token']>;
type Algorithm = NonNullable<TokenRules['client_assertion']>['algorithm'];
type Fault = { readonly fault: string };

/** The stored key cannot be used: its certificate has expired, or the definition needs another key. */
export class UnusableClientKeyError extends Error {
  readonly reason: string;
  constructor(reason: string) {
    super(`the private key of the client ${reason}`);
    this.name = 'UnusableClientKeyError';
    this.reason = reason;
  }
}

/** Whether the client's secret is a key. */
export function hasClientKey(token: Pick<TokenRules, 'auth_method'> | undefined): boolean {
  return token?.auth_method === 'private_key_jwt' || token?.auth_method === 'tls_client_auth';
}

/** What is wrong with a client secret that must be a key; undefined: nothing, or the provider takes a shared secret. */
export function clientKeyFault(
  secret: string,
  { token }: Pick<ProviderDefinition, 'token'>,
  now = new Date(),
): string | undefined {
  if (token === undefined || !hasClientKey(token)) return undefined;
  if (token.auth_method === 'tls_client_auth') return certificateFault(secret, now);
  const read = readAssertionKey(secret, { token, now });
  return 'fault' in read ? read.fault : undefined;
}

/** What is wrong with the PEM text of a private key and its certificate; undefined: nothing. */
export function certificateFault(text: string, now = new Date()): string | undefined {
  const read = readCertified(text, now);
  return 'fault' in read ? read.fault : undefined;
}

/** What a definition lacks for its client authentication: the path, and a message. */
export function clientKeyRuleFaults({
  token,
  sandbox,
}: Pick<ProviderDefinition, 'token' | 'sandbox'>): [path: string[], message: string][] {
  const faults: [string[], string][] = [];
  const needsAssertion = token?.auth_method === 'private_key_jwt';
  if (needsAssertion !== (token?.client_assertion !== undefined))
    faults.push([['token', 'client_assertion'], 'belongs to `auth_method: private_key_jwt`, which needs it']);
  if (!hasClientKey(token)) return faults;
  if (token?.client_id_param !== 'client_id')
    faults.push([['token', 'client_id_param'], 'must be client_id if the client authenticates by a key']);
  if (sandbox !== undefined)
    faults.push([['sandbox'], 'the clients of the sandbox have no key, so test credentials are impossible']);
  return faults;
}

/** `private_key_jwt`. `keyId` and `audience` are filled; without an audience it is the token endpoint. */
export function privateKeyJwt(
  secret: string,
  { token, keyId, audience, now }: { token: TokenRules; keyId?: string; audience: string; now: Date },
): oauth.ClientAuth {
  return async (server, client, body, headers) => {
    const read = readAssertionKey(secret, { token, now });
    if ('fault' in read) throw new UnusableClientKeyError(read.fault);
    const { algorithm } = assertionRules(token);
    const key = read.signing.key.toCryptoKey(cryptoAlgorithms[algorithm], false, ['sign']);
    const prove = oauth.PrivateKeyJwt(
      { key, ...(keyId !== undefined && { kid: keyId }) },
      {
        [oauth.modifyAssertion](header, payload) {
          payload.aud = audience;
          // RFC 7515 §4.1.8.
          if (read.certificate) header['x5t#S256'] = hash('sha256', read.certificate.raw, 'base64url');
        },
      },
    );
    await prove(server, client, body, headers);
  };
}

/** The certificate in the PEM text of a private key and its certificate. Throws UnusableClientKeyError. */
export function clientCertificate(text: string, now: Date): ClientCertificate {
  const read = readCertified(text, now);
  if ('fault' in read) throw new UnusableClientKeyError(read.fault);
  return {
    key: read.signing.key.export({ type: 'pkcs8', format: 'pem' }).toString(),
    cert: read.chain.map(String).join('\n'),
  };
}

const cryptoAlgorithms = {
  RS256: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
  PS256: { name: 'RSA-PSS', hash: 'SHA-256' },
  ES256: { name: 'ECDSA', namedCurve: 'P-256' },
  ES384: { name: 'ECDSA', namedCurve: 'P-384' },
} as const satisfies Record<Algorithm, object>;

function assertionRules({ client_assertion: rules }: TokenRules) {
  if (rules === undefined) throw new TypeError('the definition has no client assertion');
  return rules;
}

function readAssertionKey(
  secret: string,
  { token, now }: { token: TokenRules; now: Date },
): { signing: SigningKey; certificate: X509Certificate | undefined } | Fault {
  const { algorithm } = assertionRules(token);
  const signing = readSigningKey(withoutCertificates(secret), { algorithm, secret: 'text' });
  if ('fault' in signing) return signing;
  if (!secret.includes(certificateStart)) return { signing, certificate: undefined };
  const certified = certifiedBy(secret, { signing, now });
  return 'fault' in certified ? certified : { signing, certificate: certified.chain[0] };
}

/** A key and its certificate, which others of its chain may follow. */
function readCertified(
  secret: string,
  now: Date,
): { signing: SigningKey; chain: readonly X509Certificate[] } | Fault {
  const [first] = certificatesIn(secret);
  if (first === undefined) return { fault: 'must also have the certificate, from BEGIN CERTIFICATE to END' };
  if (first === 'damaged') return damaged;
  const algorithm = algorithmOf(first);
  if (algorithm === undefined)
    return { fault: 'has a certificate for a key that is neither RSA nor EC on P-256 or P-384' };
  const signing = readSigningKey(withoutCertificates(secret), { algorithm, secret: 'text' });
  if ('fault' in signing) return signing;
  const certified = certifiedBy(secret, { signing, now });
  return 'fault' in certified ? certified : { signing, ...certified };
}

function certifiedBy(
  secret: string,
  { signing, now }: { signing: SigningKey; now: Date },
): { chain: readonly X509Certificate[] } | Fault {
  const chain: X509Certificate[] = [];
  for (const one of certificatesIn(secret)) {
    if (one === 'damaged') return damaged;
    chain.push(one);
  }
  const [own] = chain;
  if (own === undefined) return damaged;
  if (!own.checkPrivateKey(signing.key))
    return { fault: 'does not belong to the certificate, which must be the first one of the text' };
  if (own.validToDate <= now)
    return { fault: `has a certificate that expired on ${own.validToDate.toISOString().slice(0, 10)}` };
  if (own.validFromDate > now)
    return { fault: `has a certificate that is valid from ${own.validFromDate.toISOString().slice(0, 10)}` };
  return { chain };
}

const damaged: Fault = { fault: 'has a certificate that is damaged or incomplete' };
const certificateStart = '-----BEGIN CERTIFICATE-----';
const certificate = /-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----/g;
/** Certificates of a chain. */
const maxCertificates = 5;

function* certificatesIn(secret: string): Generator<X509Certificate | 'damaged'> {
  // An input of one line may have replaced the line breaks.
  const text = secret.replaceAll('\\n', '\n');
  const bodies = [...text.matchAll(certificate)].map(([, body = '']) => body);
  if (bodies.length !== text.split(certificateStart).length - 1 || bodies.length > maxCertificates) {
    yield 'damaged';
    return;
  }
  for (const body of bodies) {
    try {
      yield new X509Certificate(Buffer.from(body, 'base64'));
    } catch {
      yield 'damaged';
      return;
    }
  }
}

function withoutCertificates(secret: string): string {
  return secret.replaceAll('\\n', '\n').replaceAll(certificate, '');
}

function algorithmOf({ publicKey }: X509Certificate): Algorithm | undefined {
  if (publicKey.asymmetricKeyType === 'rsa') return 'RS256';
  const curve = publicKey.asymmetricKeyDetails?.namedCurve;
  return curve === 'prime256v1' ? 'ES256' : curve === 'secp384r1' ? 'ES384' : undefined;
}
