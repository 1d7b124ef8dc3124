import { z } from 'zod';

const maxBytes = 64 * 1024;

/** What a file of each kind begins with. A page shows it as an image, where an SVG runs no script and loads nothing. */
const kinds: Readonly<Record<string, (bytes: Buffer) => boolean>> = {
  'image/png': (bytes) => bytes.subarray(0, 8).equals(Buffer.from('89504e470d0a1a0a', 'hex')),
  'image/jpeg': (bytes) => bytes.subarray(0, 3).equals(Buffer.from('ffd8ff', 'hex')),
  'image/webp': (bytes) =>
    bytes.toString('latin1', 0, 4) === 'RIFF' && bytes.toString('latin1', 8, 12) === 'WEBP',
  'image/svg+xml': (bytes) => /^\ufeff?\s*</.test(bytes.toString('utf8', 0, 256)) && bytes.includes('<svg'),
};

/** A picture that stands in the address itself, so that a page of ours loads nothing from anywhere else. */
export const logo = z
  .string()
  .max(Math.ceil(maxBytes / 3) * 4 + 64, 'must be an image of at most 64 KB')
  .superRefine((address, context) => {
    const [, kind = '', base64 = ''] = /^data:([a-z+/]+);base64,([A-Za-z0-9+/]+={0,2})$/.exec(address) ?? [];
    const isKind = Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
    const bytes = Buffer.from(base64, 'base64');
    if (isKind === undefined) {
      const message = `must be data:...;base64,... of ${Object.keys(kinds).join(', ')}`;
      context.addIssue({ code: 'custom', message });
    } else if (bytes.length > maxBytes) {
      context.addIssue({ code: 'custom', message: 'must be an image of at most 64 KB' });
    } else if (!isKind(bytes)) {
      context.addIssue({ code: 'custom', message: `is not what it says: ${kind}` });
    }
  });
