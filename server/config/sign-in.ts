/** The settings by which people sign in to the dashboard, and by which they get mails. */
import { emailAddress } from '../email-address.ts';
import { isLoopback, oneOf, readUrl } from './setting-values.ts';

export type SignInConfig = {
  /** Everybody who reaches the service is an owner; it is on loopback then. */
  isOff: boolean;
  /** Made the first owner at a start where there is none. */
  admin: { email: string; password: string } | undefined;
  oidc: OidcConfig | undefined;
};
/** An OpenID provider that people may sign in at. */
export type OidcConfig = { issuer: string; clientId: string; clientSecret: string; name: string };
/** Who sends mails, and from whom they are. The address may hold a password. */
export type MailConfig = { url: string; from: string };

export function readSignIn(from: {
  read: (name: string) => string | undefined;
  host: string;
  baseUrl: string;
  faults: string[];
}): SignInConfig {
  const { read, faults } = from;
  const isOff =
    oneOf(read('TRELLIS_SIGN_IN'), {
      name: 'TRELLIS_SIGN_IN',
      allowed: ['on', 'off'] as const,
      fallback: 'on',
      faults,
    }) === 'off';
  if (isOff && !(isLoopback(from.host) && isLoopback(URL.parse(from.baseUrl)?.hostname ?? ''))) {
    faults.push('TRELLIS_SIGN_IN=off is for this machine alone: HOST and BASE_URL must be loopback');
  }
  const email = read('TRELLIS_ADMIN_EMAIL');
  const password = read('TRELLIS_ADMIN_PASSWORD');
  if ((email === undefined) !== (password === undefined)) {
    faults.push('TRELLIS_ADMIN_EMAIL and TRELLIS_ADMIN_PASSWORD are set together or not at all');
  }
  if (email !== undefined && !emailAddress.safeParse(email).success) {
    faults.push(`TRELLIS_ADMIN_EMAIL must be an e-mail address, it is "${email}"`);
  }
  if (password !== undefined && (password.length < 12 || password.length > 128)) {
    faults.push('TRELLIS_ADMIN_PASSWORD must be 12 to 128 characters');
  }
  const admin = email !== undefined && password !== undefined ? { email, password } : undefined;
  return { isOff, admin, oidc: readOidc(read, faults) };
}

export function readSmtp(
  read: (name: string) => string | undefined,
  faults: string[],
): MailConfig | undefined {
  const [url, from] = [read('SMTP_URL'), read('SMTP_FROM')];
  if ((url === undefined) !== (from === undefined))
    faults.push('SMTP_URL and SMTP_FROM are set together or not at all');
  if (url !== undefined && !/^smtps?:$/.test(URL.parse(url)?.protocol ?? '')) {
    faults.push('SMTP_URL must be smtp:// or smtps://, with user and password where the server wants them');
  }
  if (from !== undefined && !/^([^<>\r\n]*<)?[^@\s<>]+@[^@\s<>]+>?$/.test(from)) {
    faults.push(`SMTP_FROM must be an address such as Trellis <trellis@example.com>, it is "${from}"`);
  }
  return url !== undefined && from !== undefined ? { url, from } : undefined;
}

function readOidc(read: (name: string) => string | undefined, faults: string[]): OidcConfig | undefined {
  const issuer = read('TRELLIS_OIDC_ISSUER');
  const clientId = read('TRELLIS_OIDC_CLIENT_ID');
  const clientSecret = read('TRELLIS_OIDC_CLIENT_SECRET');
  const name = read('TRELLIS_OIDC_NAME') ?? 'OpenID Connect';
  if (issuer === undefined && clientId === undefined && clientSecret === undefined) return undefined;
  if (issuer === undefined || clientId === undefined || clientSecret === undefined) {
    faults.push(
      'TRELLIS_OIDC_ISSUER, TRELLIS_OIDC_CLIENT_ID and TRELLIS_OIDC_CLIENT_SECRET are set together',
    );
    return undefined;
  }
  const url = URL.parse(readUrl(issuer, { name: 'TRELLIS_OIDC_ISSUER', fallback: '', faults }));
  // An ID token that comes straight from the issuer is trusted without a signature.
  if (url?.protocol === 'http:' && !isLoopback(url.hostname))
    faults.push('TRELLIS_OIDC_ISSUER must be an https:// address; http is for loopback alone');
  // As it is spelled: it is compared with what the provider calls itself.
  return { issuer, clientId, clientSecret, name };
}
