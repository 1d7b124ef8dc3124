import { type CSSVariablesResolver, colorsTuple, createTheme } from '@mantine/core';
import { wordsOn } from '../ui/contrast.ts';
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
    '--on-accent': wordsOn(color),
    '--mantine-color-brand-filled': color,
    '--mantine-color-brand-filled-hover': `color-mix(in srgb, ${color} 88%, black)`,
    '--mantine-primary-color-filled': color,
    '--mantine-color-anchor': color,
  };
}
