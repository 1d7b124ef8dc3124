/** The settings for the sign-in to the dashboard, and for mails. */
import { emailAddress } from '../email-address.ts';
import { isLoopback, type Settings } from './setting-values.ts';

export type SignInConfig = {
  /** Every caller of the service is an owner; it listens on loopback then. */
  isOff: boolean;
  /** Made the first owner at a start without an owner. */
  admin: { email: string; password: string } | undefined;
  oidc: OidcConfig | undefined;
};
/** An OpenID provider that people may sign in at. */
export type OidcConfig = { issuer: string; clientId: string; clientSecret: string; name: string };
/** Who sends mails, and from whom they are. The address may hold a password. */
export type MailConfig = { url: string; from: string };

export function readSignIn(settings: Settings, at: { host: string; baseUrl: string }): SignInConfig {
  const { faults } = settings;
  const isOff = !settings.isOn('TRELLIS_SIGN_IN');
  if (isOff && !(isLoopback(at.host) && isLoopback(URL.parse(at.baseUrl)?.hostname ?? ''))) {
    faults.push(
      'TRELLIS_SIGN_IN=off is allowed only for this machine: HOST and BASE_URL must be loopback addresses',
    );
  }
  const email = settings.read('TRELLIS_ADMIN_EMAIL');
  const password = settings.secret('TRELLIS_ADMIN_PASSWORD');
  if ((email === undefined) !== (password === undefined)) {
    faults.push('TRELLIS_ADMIN_EMAIL and TRELLIS_ADMIN_PASSWORD must be set together');
  }
  if (email !== undefined && !emailAddress.safeParse(email).success) {
    faults.push(`TRELLIS_ADMIN_EMAIL must be an e-mail address, it is "${email}"`);
  }
  if (password !== undefined && (password.length < 12 || password.length > 128)) {
    faults.push('TRELLIS_ADMIN_PASSWORD must be 12 to 128 characters');
  }
  const admin = email !== undefined && password !== undefined ? { email, password } : undefined;
  return { isOff, admin, oidc: readOidc(settings) };
}

export function readSmtp(settings: Settings): MailConfig | undefined {
  const { faults } = settings;
  const [url, from] = [settings.secret('SMTP_URL'), settings.read('SMTP_FROM')];
  if ((url === undefined) !== (from === undefined))
    faults.push('SMTP_URL and SMTP_FROM must be set together');
  if (url !== undefined && !/^smtps?:$/.test(URL.parse(url)?.protocol ?? '')) {
    faults.push('SMTP_URL must be smtp:// or smtps://, with user and password if the server requires them');
  }
  if (from !== undefined && !/^([^<>\r\n]*<)?[^@\s<>]+@[^@\s<>]+>?$/.test(from)) {
    faults.push(`SMTP_FROM must be an address such as Trellis <trellis@example.com>, it is "${from}"`);
  }
  return url !== undefined && from !== undefined ? { url, from } : undefined;
}

function readOidc(settings: Settings): OidcConfig | undefined {
  const { faults } = settings;
  const issuer = settings.read('TRELLIS_OIDC_ISSUER');
  const clientId = settings.read('TRELLIS_OIDC_CLIENT_ID');
  const clientSecret = settings.secret('TRELLIS_OIDC_CLIENT_SECRET');
  const name = settings.read('TRELLIS_OIDC_NAME') ?? 'OpenID Connect';
  if (issuer === undefined && clientId === undefined && clientSecret === undefined) return undefined;
  if (issuer === undefined || clientId === undefined || clientSecret === undefined) {
    faults.push(
      'TRELLIS_OIDC_ISSUER, TRELLIS_OIDC_CLIENT_ID and TRELLIS_OIDC_CLIENT_SECRET must be set together',
    );
    return undefined;
  }
  const url = URL.parse(settings.url('TRELLIS_OIDC_ISSUER', ''));
  // An ID token that comes straight from the issuer is trusted without a signature.
  if (url?.protocol === 'http:' && !isLoopback(url.hostname))
    faults.push(
      'TRELLIS_OIDC_ISSUER must be an https:// address; http:// is allowed only for loopback addresses',
    );
  // Unchanged: it is compared with the name that the provider gives.
  return { issuer, clientId, clientSecret, name };
}
