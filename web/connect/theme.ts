import { type CSSVariablesResolver, colorsTuple, createTheme } from '@mantine/core';
import type { Settings } from './queries.ts';

type Colors = Settings['colors'];

/** The main color of the environment on everything that may be pressed. */
export const themeOf = (colors: Colors) =>
  createTheme({
    colors: { brand: colorsTuple(colors.light.primary) },
    primaryColor: 'brand',
    defaultRadius: 'md',
    cursorType: 'pointer',
    respectReducedMotion: true,
    fontFamily:
      'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans JP", Arial, sans-serif',
  });

/** Mantine knows one shade for each scheme, the environment a color. */
export const variablesOf =
  (colors: Colors): CSSVariablesResolver =>
  () => ({
    variables: {},
    light: {
      ...accent(colors.light.primary),
      '--mantine-color-body': '#ffffff',
      '--mantine-color-dimmed': '#59616b',
      '--mantine-color-placeholder': '#6b737d',
      '--mantine-color-error': '#a61b1b',
    },
    dark: {
      ...accent(colors.dark.primary),
      '--mantine-color-body': '#1a1b1e',
      '--mantine-color-dimmed': '#a9b1ba',
      '--mantine-color-placeholder': '#949ca6',
      '--mantine-color-error': '#ff9d94',
    },
  });

function accent(color: string): Record<string, string> {
  return {
    '--accent': color,
    '--on-accent': isLight(color) ? '#0b1020' : '#ffffff',
    '--mantine-color-brand-filled': color,
    '--mantine-color-brand-filled-hover': `color-mix(in srgb, ${color} 88%, black)`,
    '--mantine-primary-color-filled': color,
    '--mantine-color-anchor': color,
  };
}

/** Whether dark words stand out better on it (WCAG 2.2, relative luminance). */
function isLight(color: string): boolean {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const part = Number.parseInt(color.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}
