/** Detection of secrets in a text. Pure; `scan-secrets.ts` selects the files. */

/** `secret` is the text itself, for the allow list; it must never be logged. */
type Finding = { line: number; kind: string; secret: string };

/** Unique formats of secrets. The first group, if any, is the secret itself. */
const forms: Record<string, RegExp> = {
  'private key': /-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----/g,
  // https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
  'AWS access key': /\b(?:AKIA|ASIA)[A-Z2-7]{16}\b/g,
  'Google API key': /\bAIza[\w-]{35}(?![\w-])/g,
  'Google client secret': /\bGOCSPX-[\w-]{28}(?![\w-])/g,
  'Google access token': /\bya29\.[\w-]{30,}/g,
  'Google refresh token': /(?<![\w/])1\/\/0[\w-]{30,}/g,
  // https://docs.github.com/en/authentication/keeping-your-account-and-data-secure/about-authentication-to-github
  'GitHub token': /\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_\w{60,})\b/g,
  'npm token': /\bnpm_[A-Za-z0-9]{36}\b/g,
  'Slack token': /\bxox[abeoprs]-[A-Za-z0-9-]{20,}/g,
  'Stripe key': /\b[rs]k_live_[A-Za-z0-9]{20,}/g,
  // RFC 7519: two JSON objects and a signature.
  JWT: /\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}/g,
  'key of Trellis': /\btrs_[a-z0-9-]+_([A-Za-z0-9_-]{43})(?![\w-])/g,
  'session token of Trellis': /\b[a-z][a-z0-9]*_connect_session_([A-Za-z0-9_-]{32,})/g,
  'master key of Trellis': /\b[\w.-]{1,32}:([A-Za-z0-9+/]{43}=)(?![A-Za-z0-9+/=])/g,
  'signing key of events': /\bwhsec_([A-Za-z0-9+/]{32,}={0,2})/g,
  // A word in capitals stands for one.
  'password in an address': /\b[a-z][a-z0-9+]*:\/\/[^\s:/@'"`]+:(?![A-Z_]+@)([^\s@/'"`<>{}$]{8,})@/g,
};

/** A possible key in any format: long, and as mixed as random characters. */
const mixed = /(?<![A-Za-z0-9+/_=.-])[A-Za-z0-9+/_-]{32,200}={0,2}(?![A-Za-z0-9+/_=-])/g;
const minBits = 4;
/** In random base64, about 0.63 of all neighbours differ in kind; in names, which consist of words, about 0.3. */
const minChanges = 0.45;

/** Each place of `text` that looks like a secret, in order of lines. */
export function findSecrets(text: string): Finding[] {
  const found: Finding[] = [];
  for (const [at, line] of text.split('\n').entries()) {
    const add = (kind: string, secret: string) => {
      const known = found.some(
        (one) => one.line === at + 1 && (one.secret.includes(secret) || secret.includes(one.secret)),
      );
      if (!known) found.push({ line: at + 1, kind, secret });
    };
    for (const [kind, form] of Object.entries(forms)) {
      for (const [whole, secret = whole] of line.matchAll(form)) add(kind, secret);
    }
    for (const [word] of line.matchAll(mixed)) if (isRandom(word)) add('high entropy', word);
  }
  return found;
}

/** Neither a path nor joined words: digits and both cases are mixed. */
function isRandom(word: string): boolean {
  if (!/\d/.test(word) || !/[a-z]/.test(word) || !/[A-Z]/.test(word)) return false;
  // The digest in the name of a built file.
  if (/^\/?assets\//.test(word)) return false;
  return changesOf(word) >= minChanges && entropyOf(word) >= minBits;
}

/** The share of neighbours that differ in kind, 0 to 1: small letter, capital, digit, other. */
function changesOf(word: string): number {
  const kinds = word
    .replace(/[a-z]/g, 'a')
    .replace(/[A-Z]/g, 'A')
    .replace(/\d/g, '0')
    .replace(/[^aA0]/g, '-');
  let changes = 0;
  for (let at = 1; at < kinds.length; at += 1) if (kinds[at] !== kinds[at - 1]) changes += 1;
  return changes / (word.length - 1);
}

/** Bits for each character (Shannon). */
function entropyOf(word: string): number {
  const counts = new Map<string, number>();
  for (const one of word) counts.set(one, (counts.get(one) ?? 0) + 1);
  return [...counts.values()].reduce((sum, count) => {
    const share = count / word.length;
    return sum - share * Math.log2(share);
  }, 0);
}
