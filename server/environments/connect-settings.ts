/**
 * The appearance of an environment's connect page.
 *
 * Owns: the table `connect_settings`, the defaults, and warnings about colors. No value can carry CSS or HTML: the page
 * gets colors, a font name and numbers of fixed forms, and shows texts as text. Does not own: the route (`deliveries/settings-routes.ts`), the page (`connect/`).
 */
import { z } from 'zod';
import { type Queryable, type Tx, tables } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { text } from '../http/text.ts';
import { textKeys } from './connect-texts.ts';

const themes = ['system', 'light', 'dark'] as const;
/** The languages of the connect page. */
const languages = ['en', 'de', 'fr', 'es', 'ja', 'ar'] as const;
type Language = (typeof languages)[number];

export type ConnectSettings = {
  /** Undefined: pages say "the application". */
  appName: string | undefined;
  /** A data: address of an image. */
  logo: string | undefined;
  theme: (typeof themes)[number];
  /** The colors in each theme, as #rrggbb: of buttons and links, behind the page, and of its text. */
  colors: { light: ThemeColors; dark: ThemeColors };
  /** Undefined: the language of the browser. */
  language: Language | undefined;
  /** The name of a font family that the user's device has. Undefined: that of the system. */
  font: string | undefined;
  /** The corners of buttons and fields, in pixels. */
  radius: number;
  /** Texts in place of those of the page, by language and key. */
  texts: Partial<Record<Language, Record<string, string>>>;
  /** Schemes that a `return_url` may have besides http and https. */
  returnSchemes: readonly string[];
};
type ThemeColors = { primary: string; background: string; text: string };

const color = z
  .string()
  .regex(/^#[0-9A-Fa-f]{6}$/, 'must be a color such as #2454d6')
  .toLowerCase();
const themeColors = z.object({ primary: color, background: color, text: color });
const theme = z.enum(themes);
const language = z.enum(languages).nullable();
const font = z
  .string()
  .max(48)
  .regex(/^[A-Za-z][A-Za-z0-9]*([ -][A-Za-z0-9]+)*$/, 'must be the name of one font family, such as Inter');
const radius = z.int().min(0).max(24);

const maxTextLength = 500;
const maxTextsBytes = 32 * 1024;
/** A text of the page. Null restores that of the page. */
const pageText = text({ min: 1, max: maxTextLength })
  .trim()
  .min(1)
  .regex(/^\P{Cc}*$/u, 'must not contain control characters');
const pageTexts = z
  .partialRecord(z.enum(languages), z.record(z.string(), pageText.nullable()))
  .superRefine((given, context) => {
    for (const [spoken, texts] of Object.entries(given)) {
      for (const [key, value] of Object.entries(texts)) {
        const message = textFault(key, value);
        if (message !== undefined) context.addIssue({ code: 'custom', message, path: [spoken, key] });
      }
    }
  });

function textFault(key: string, value: string | null): string | undefined {
  const placeholders = Object.hasOwn(textKeys, key) ? textKeys[key] : undefined;
  if (placeholders === undefined) return 'is not a text of the connect page';
  if (
    !/[{}]/.test(value?.replaceAll(/\{(\w+)\}/g, (_, name) => (placeholders.includes(name) ? '' : '{')) ?? '')
  )
    return undefined;
  return `may contain only the placeholders ${placeholders.map((name) => `{${name}}`).join(', ')}`;
}

/** Schemes by which a browser runs code, reads files, or starts programs of the system. */
const refusedSchemes =
  /^(https?|wss?|ftp|javascript|vbscript|livescript|data|blob|file|filesystem|about|view-source|jar|mhtml|mk|res|content|intent|android-app|googlechrome|search|shell|hcp|ldap|ssh|telnet|smb|nfs|(ms|chrome|moz|edge|devtools|search|x-apple|ie)([.+-].*)?)$/;
/** RFC 3986 §3.1. */
const returnScheme = z
  .string()
  .toLowerCase()
  .max(64)
  .regex(/^[a-z][a-z0-9+.-]*$/, 'must be the scheme of an address without its colon, such as myapp')
  .refine((scheme) => !refusedSchemes.test(scheme), 'is not a scheme of an application');

const maxBytes = 64 * 1024;

/** How each kind of file begins. In an image element an SVG runs no script and loads nothing. */
const kinds: Readonly<Record<string, (bytes: Buffer) => boolean>> = {
  'image/png': (bytes) => bytes.subarray(0, 8).equals(Buffer.from('89504e470d0a1a0a', 'hex')),
  'image/jpeg': (bytes) => bytes.subarray(0, 3).equals(Buffer.from('ffd8ff', 'hex')),
  'image/webp': (bytes) =>
    bytes.toString('latin1', 0, 4) === 'RIFF' && bytes.toString('latin1', 8, 12) === 'WEBP',
  'image/svg+xml': (bytes) => /^\ufeff?\s*</.test(bytes.toString('utf8', 0, 256)) && bytes.includes('<svg'),
};

/** An image as a data: address, so the page loads nothing from other hosts. */
const logo = z
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
      context.addIssue({ code: 'custom', message: `is not a valid ${kind} file` });
    }
  });

const defaults = {
  theme: 'system',
  radius: 8,
  light: { primary: '#2454d6', background: '#ffffff', text: '#16191d' },
  dark: { primary: '#8fb0ff', background: '#1a1b1e', text: '#eceff2' },
} as const;
/** The color of messages about errors on the page, which does not change. */
const messageColor = { light: '#a61b1b', dark: '#ff9d94' } as const;
/** For text of any size, because links have the color (WCAG 2.2 §1.4.3). */
const neededContrast = 4.5;

/** The settings on the wire; they are valid input, too. */
export const connectWire = z.object({
  app_name: z.string().nullable(),
  logo: z.string().nullable(),
  theme,
  colors: z.object({ light: themeColors, dark: themeColors }),
  language,
  font: z.string().nullable(),
  radius,
  texts: z.partialRecord(z.enum(languages), z.record(z.string(), z.string())),
  return_schemes: z.array(z.string()),
});

/** Omitted fields stay; null restores the default. */
export const connectInput = z.strictObject({
  app_name: text({ min: 1, max: 80 }).trim().min(1).nullable().optional(),
  logo: logo.nullable().optional(),
  theme: theme.nullable().optional(),
  colors: z
    .strictObject({
      light: changedColors('light').nullable().optional(),
      dark: changedColors('dark').nullable().optional(),
    })
    .optional(),
  language: language.optional(),
  font: font.nullable().optional(),
  radius: radius.nullable().optional(),
  /** Absent languages and keys stay, too. */
  texts: pageTexts.nullable().optional(),
  return_schemes: z.array(returnScheme).max(10).nullable().optional(),
});

function changedColors(theme: 'light' | 'dark') {
  const background = color.refine(
    (given) => contrastOf(given, messageColor[theme]) >= neededContrast,
    `must be a ${theme} color: messages are written on it`,
  );
  return z.strictObject({
    primary: color.nullable().optional(),
    background: background.nullable().optional(),
    text: color.nullable().optional(),
  });
}

type ConnectChange = z.output<typeof connectInput>;

const columns = [
  ...(['app_name', 'logo', 'theme', 'language', 'font', 'radius', 'texts', 'return_schemes'] as const),
  ...(['light_primary', 'light_background', 'light_text'] as const),
  ...(['dark_primary', 'dark_background', 'dark_text'] as const),
] as const;

/** The settings, with defaults for those that are not set. */
export async function readConnectSettings(db: Queryable, environmentId: number): Promise<ConnectSettings> {
  const [row] = await db.run(
    tables.selectFrom('connect_settings').select(columns).where('environment_id', '=', environmentId),
  );
  const colorsIn = (theme: 'light' | 'dark') => ({
    primary: row?.[`${theme}_primary`] ?? defaults[theme].primary,
    background: row?.[`${theme}_background`] ?? defaults[theme].background,
    text: row?.[`${theme}_text`] ?? defaults[theme].text,
  });
  return {
    appName: row?.app_name ?? undefined,
    logo: row?.logo ?? undefined,
    theme: (row?.theme ?? defaults.theme) as ConnectSettings['theme'],
    colors: { light: colorsIn('light'), dark: colorsIn('dark') },
    // The stored language may be one that is no longer supported.
    language: languages.find((known) => known === row?.language),
    font: row?.font ?? undefined,
    radius: row?.radius ?? defaults.radius,
    texts: (row?.texts ?? {}) as ConnectSettings['texts'],
    returnSchemes: row?.return_schemes ?? [],
  };
}

/** Undefined fields stay. Throws `invalid_body` if all texts together are too long. */
export async function writeConnectSettings(
  tx: Tx,
  { environmentId, change }: { environmentId: number; change: ConnectChange },
): Promise<void> {
  const { colors = {}, texts, ...others } = change;
  const values = {
    ...Object.fromEntries(Object.entries(others).filter(([, value]) => value !== undefined)),
    ...colorValues('light', colors.light),
    ...colorValues('dark', colors.dark),
    ...(texts !== undefined && { texts: await mergedTexts(tx, { environmentId, texts }) }),
  };
  if (Object.keys(values).length === 0) return;
  await tx.run(
    tables
      .insertInto('connect_settings')
      .values({ environment_id: environmentId, ...values })
      .onConflict((conflict) => conflict.column('environment_id').doUpdateSet(values)),
  );
}

/** Null restores all colors of a theme. */
function colorValues(
  theme: 'light' | 'dark',
  change: Partial<Record<keyof ThemeColors, string | null | undefined>> | null | undefined,
): Record<string, string | null> {
  if (change === undefined) return {};
  const names = ['primary', 'background', 'text'] as const;
  return Object.fromEntries(
    names
      .filter((name) => change === null || change[name] !== undefined)
      .map((name) => [`${theme}_${name}`, change?.[name] ?? null]),
  );
}

/** The stored texts with a change, as JSON; null if there are none. */
async function mergedTexts(
  tx: Tx,
  { environmentId, texts }: { environmentId: number; texts: NonNullable<ConnectChange['texts']> | null },
): Promise<string | null> {
  if (texts === null) return null;
  // Two changes at once are merged one after the other.
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
  const { texts: known } = await readConnectSettings(tx, environmentId);
  const merged = languages.flatMap((language) => {
    const changed = Object.entries({ ...known[language], ...texts[language] });
    const left = changed.filter(([, value]) => value !== null);
    return left.length === 0 ? [] : [[language, Object.fromEntries(left)] as const];
  });
  if (merged.length === 0) return null;
  const json = JSON.stringify(Object.fromEntries(merged));
  if (Buffer.byteLength(json) > maxTextsBytes) {
    const message = `All texts together may have at most ${maxTextsBytes / 1024} KB.`;
    throw fieldError('invalid_body', ['connect', 'texts'], message);
  }
  return json;
}

export function connectToWire(settings: ConnectSettings): z.input<typeof connectWire> {
  const { appName, logo, theme, colors, language, font, radius, texts, returnSchemes } = settings;
  return {
    app_name: appName ?? null,
    logo: logo ?? null,
    theme,
    colors,
    language: language ?? null,
    font: font ?? null,
    radius,
    texts,
    return_schemes: [...returnSchemes],
  };
}

export const connectWarning = z.object({
  path: z.array(z.string()),
  /** To one. */
  contrast: z.number(),
  needed: z.number(),
  message: z.string(),
});
nameSchemas({
  ConnectSettings: connectWire,
  ConnectSettingsChange: connectInput,
  ConnectWarning: connectWarning,
});

/** Warnings about colors that are hard to read. They are accepted all the same. */
export function warningsOf({ colors }: ConnectSettings): z.input<typeof connectWarning>[] {
  return (['light', 'dark'] as const).flatMap((theme) =>
    (['primary', 'text'] as const).flatMap((name) => {
      const { [name]: shown, background } = colors[theme];
      const contrast = contrastOf(shown, background);
      if (contrast >= neededContrast) return [];
      const rounded = Math.floor(contrast * 100) / 100;
      return [
        {
          path: ['colors', theme, name],
          contrast: rounded,
          needed: neededContrast,
          message:
            `${shown} is hard to read on the ${theme} page: its contrast is ${rounded.toFixed(2)} : 1, and ` +
            `${neededContrast} : 1 is needed.`,
        },
      ];
    }),
  );
}

/** The contrast of two colors given as #rrggbb, from 1 to 21 (WCAG 2.2, "contrast ratio"). */
export function contrastOf(one: string, other: string): number {
  const [lighter = 0, darker = 0] = [luminanceOf(one), luminanceOf(other)].sort((a, b) => b - a);
  return (lighter + 0.05) / (darker + 0.05);
}

/** WCAG 2.2, "relative luminance". */
function luminanceOf(color: string): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const share = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
