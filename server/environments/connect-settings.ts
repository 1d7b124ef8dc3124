/**
 * The appearance of an environment's connect page.
 *
 * Owns: the table `connect_settings`, the defaults, and warnings about colors. Does not own:
 * the route (`deliveries/settings-routes.ts`), the page (`connect/`).
 */
import { z } from 'zod';
import { type Queryable, type Tx, tables } from '../db/pool.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { text } from '../http/text.ts';

const themes = ['system', 'light', 'dark'] as const;
/** The languages of the connect page. */
const languages = ['en', 'de', 'fr', 'es', 'ja'] as const;

export type ConnectSettings = {
  /** Undefined: pages say "the application". */
  appName: string | undefined;
  /** A data: address of an image. */
  logo: string | undefined;
  theme: (typeof themes)[number];
  /** The main color in each theme, as #rrggbb. */
  primary: { light: string; dark: string };
  /** Undefined: the language of the browser. */
  language: (typeof languages)[number] | undefined;
};

const color = z
  .string()
  .regex(/^#[0-9A-Fa-f]{6}$/, 'must be a color such as #2454d6')
  .toLowerCase();
const primary = z.strictObject({ primary: color });
const theme = z.enum(themes);
const language = z.enum(languages).nullable();

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

/** The settings on the wire; they are valid input, too. */
export const connectWire = z.object({
  app_name: z.string().nullable(),
  logo: z.string().nullable(),
  theme,
  colors: z.object({ light: primary, dark: primary }),
  language,
});

/** Omitted fields stay; null restores the default. */
export const connectInput = z.strictObject({
  app_name: text({ min: 1, max: 80 }).trim().min(1).nullable().optional(),
  logo: logo.nullable().optional(),
  theme: theme.nullable().optional(),
  colors: z
    .strictObject({ light: primary.nullable().optional(), dark: primary.nullable().optional() })
    .optional(),
  language: language.optional(),
});
type ConnectChange = z.output<typeof connectInput>;

const defaults = { theme: 'system', light: '#2454d6', dark: '#8fb0ff' } as const;
/** The background of the color on the page. */
const background = { light: '#ffffff', dark: '#1a1b1e' } as const;
/** For text of any size, because links have the color (WCAG 2.2 §1.4.3). */
const neededContrast = 4.5;

/** The settings, with defaults for those that are not set. */
export async function readConnectSettings(db: Queryable, environmentId: number): Promise<ConnectSettings> {
  const [row] = await db.run(
    tables
      .selectFrom('connect_settings')
      .select(['app_name', 'logo', 'theme', 'light_primary', 'dark_primary', 'language'])
      .where('environment_id', '=', environmentId),
  );
  return {
    appName: row?.app_name ?? undefined,
    logo: row?.logo ?? undefined,
    theme: (row?.theme ?? defaults.theme) as ConnectSettings['theme'],
    primary: { light: row?.light_primary ?? defaults.light, dark: row?.dark_primary ?? defaults.dark },
    // The stored language may be one that is no longer supported.
    language: languages.find((known) => known === row?.language),
  };
}

/** Undefined fields stay. */
export async function writeConnectSettings(
  tx: Tx,
  { environmentId, change }: { environmentId: number; change: ConnectChange },
): Promise<void> {
  const { colors = {} } = change;
  const values = {
    ...(change.app_name !== undefined && { app_name: change.app_name }),
    ...(change.logo !== undefined && { logo: change.logo }),
    ...(change.theme !== undefined && { theme: change.theme }),
    ...(change.language !== undefined && { language: change.language }),
    ...(colors.light !== undefined && { light_primary: colors.light?.primary ?? null }),
    ...(colors.dark !== undefined && { dark_primary: colors.dark?.primary ?? null }),
  };
  if (Object.keys(values).length === 0) return;
  await tx.run(
    tables
      .insertInto('connect_settings')
      .values({ environment_id: environmentId, ...values })
      .onConflict((conflict) => conflict.column('environment_id').doUpdateSet(values)),
  );
}

export function connectToWire(settings: ConnectSettings): z.input<typeof connectWire> {
  return {
    app_name: settings.appName ?? null,
    logo: settings.logo ?? null,
    theme: settings.theme,
    colors: { light: { primary: settings.primary.light }, dark: { primary: settings.primary.dark } },
    language: settings.language ?? null,
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
export function warningsOf({ primary }: ConnectSettings): z.input<typeof connectWarning>[] {
  return (['light', 'dark'] as const).flatMap((theme) => {
    const contrast = contrastOf(primary[theme], background[theme]);
    if (contrast >= neededContrast) return [];
    const shown = Math.floor(contrast * 100) / 100;
    return [
      {
        path: ['colors', theme, 'primary'],
        contrast: shown,
        needed: neededContrast,
        message:
          `${primary[theme]} is hard to read on the ${theme} page: its contrast is ${shown.toFixed(2)} : 1, and ` +
          `${neededContrast} : 1 is needed.`,
      },
    ];
  });
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
