import { createTheme, type InputProps, type MantineColorsTuple, type MantineTheme } from '@mantine/core';
import type { MouseEvent } from 'react';

/** The blue of the connect pages, from light to dark. */
const trellis: MantineColorsTuple = [
  '#edf2ff',
  '#dbe4ff',
  '#b8c8fb',
  '#92abf6',
  '#7191f1',
  '#4f74e6',
  '#2f5cdb',
  '#2454d6',
  '#1b44b4',
  '#143590',
];

/** Mantine's red, darker from the sixth shade: white text on a filled background reaches 4.5:1. */
const red: MantineColorsTuple = [
  '#fff5f5',
  '#ffe3e3',
  '#ffc9c9',
  '#ffa8a8',
  '#ff8787',
  '#ff6b6b',
  '#d43038',
  '#c92a2a',
  '#b02525',
  '#9c1f1f',
];

export const theme = createTheme({
  colors: { trellis, red },
  primaryColor: 'trellis',
  primaryShade: { light: 7, dark: 6 },
  autoContrast: true,
  defaultRadius: 'md',
  cursorType: 'pointer',
  respectReducedMotion: true,
  fontFamily: 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif',
  fontSizes: { md: '0.875rem' },
  lineHeights: { md: '1.45' },
  headings: {
    fontWeight: '650',
    sizes: {
      h1: { fontSize: '1.25rem', lineHeight: '1.4' },
      h2: { fontSize: '1rem', lineHeight: '1.5' },
      h3: { fontSize: '0.875rem', lineHeight: '1.5' },
    },
  },
  components: {
    Card: { defaultProps: { withBorder: true, padding: 'md', radius: 'md' } },
    Badge: { defaultProps: { variant: 'light', radius: 'sm', tt: 'none', fw: 550 } },
    Alert: { defaultProps: { variant: 'light' } },
    // The placeholder is focusable, and no item of the menu.
    Menu: { defaultProps: { withInitialFocusPlaceholder: false } },
    // A dialog returns the focus to the menu's button, because the menu item no longer exists.
    MenuDropdown: {
      defaultProps: {
        onClickCapture: ({ currentTarget }: MouseEvent<HTMLElement>) =>
          document.getElementById(currentTarget.getAttribute('aria-labelledby') ?? '')?.focus(),
      },
    },
    Drawer: { defaultProps: { position: 'right', size: 'lg', closeButtonProps: { 'aria-label': 'Close' } } },
    Modal: { defaultProps: { closeButtonProps: { 'aria-label': 'Close' } } },
    Notification: { defaultProps: { closeButtonProps: { 'aria-label': 'Close' } } },
    // Rows of one line are 34 pixels high.
    Table: { defaultProps: { verticalSpacing: 6, horizontalSpacing: 'sm' } },
    // Without space for a scrollbar below the last row where nothing scrolls.
    TableScrollContainer: { defaultProps: { scrollAreaProps: { offsetScrollbars: 'present' } } },
    Input: {
      vars: (_: MantineTheme, { size = 'sm', multiline }: InputProps) => ({
        wrapper:
          size === 'sm'
            ? { '--input-height': '2rem', ...(multiline && { '--input-padding-y': '0.2375rem' }) }
            : {},
      }),
    },
    Tooltip: { defaultProps: { withArrow: true, openDelay: 250 } },
  },
});
