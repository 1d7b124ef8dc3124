/**
 * How the connect page of an environment looks.
 *
 * Owns: the table `connect_settings`, what stands there where nothing was said, what is odd about a color. Does not own:
 * the route (`deliveries/settings-routes.ts`), the page (`connect/`).
 */
import { z } from 'zod';
import { first, type Queryable, type Tx, tables } from '../db/pool.ts';
import { text } from '../http/text.ts';
import { logo } from './logo.ts';

const themes = ['system', 'light', 'dark'] as const;
/** The languages that the connect page speaks. */
const languages = ['en', 'de', 'fr', 'es', 'ja'] as const;

export type ConnectSettings = {
  /** Undefined: pages say "the application". */
  appName: string | undefined;
  /** A data: address of an image. */
  logo: string | undefined;
  theme: (typeof themes)[number];
  /** The main color in each theme, as #rrggbb. */
  primary: { light: string; dark: string };
  /** Undefined: as the browser asks. */
  language: (typeof languages)[number] | undefined;
};

const color = z
  .string()
  .regex(/^#[0-9A-Fa-f]{6}$/, 'must be a color such as #2454d6')
  .toLowerCase();
const primary = z.strictObject({ primary: color });
const theme = z.enum(themes);
const language = z.enum(languages).nullable();

/** On the wire. What it answers may be sent back as it is. */
export const connectWire = z.object({
  app_name: z.string().nullable(),
  logo: z.string().nullable(),
  theme,
  colors: z.object({ light: primary, dark: primary }),
  language,
});

/** What is left out stays; null gives back what is without a word. */
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
/** What stands behind the color on the page. */
const behind = { light: '#ffffff', dark: '#1a1b1e' } as const;
/** For text of any size (WCAG 2.2 §1.4.3): links have the color. */
const neededContrast = 4.5;

/** As they are set, or as they are without a word. */
export async function readConnectSettings(db: Queryable, environmentId: number): Promise<ConnectSettings> {
  const row = first(
    await db.run(
      tables
        .selectFrom('connect_settings')
        .select(['app_name', 'logo', 'theme', 'light_primary', 'dark_primary', 'language'])
        .where('environment_id', '=', environmentId),
    ),
  );
  return {
    appName: row?.app_name ?? undefined,
    logo: row?.logo ?? undefined,
    theme: (row?.theme ?? defaults.theme) as ConnectSettings['theme'],
    primary: { light: row?.light_primary ?? defaults.light, dark: row?.dark_primary ?? defaults.dark },
    // A language that is spoken no more.
    language: languages.find((known) => known === row?.language),
  };
}

/** What is undefined stays. */
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

/** Colors that are hard to read on the page; none is refused for it. */
export function warningsOf({ primary }: ConnectSettings): z.input<typeof connectWarning>[] {
  return (['light', 'dark'] as const).flatMap((theme) => {
    const contrast = contrastOf(primary[theme], behind[theme]);
    if (contrast >= neededContrast) return [];
    const told = Math.floor(contrast * 100) / 100;
    return [
      {
        path: ['colors', theme, 'primary'],
        contrast: told,
        needed: neededContrast,
        message:
          `${primary[theme]} is hard to read on the ${theme} page: its contrast is ${told.toFixed(2)} : 1, and ` +
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
