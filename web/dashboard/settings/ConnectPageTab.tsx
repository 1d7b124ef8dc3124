import {
  Alert,
  Box,
  Button,
  Card,
  ColorInput,
  FileButton,
  Group,
  NumberInput,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
  Textarea,
  TextInput,
  Title,
} from '@mantine/core';
import { useForm } from '@mantine/form';
import { notifications } from '@mantine/notifications';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import {
  type Language,
  languageNames,
  languages,
  type TextKey,
  textIn,
  textKeys,
  translatorFor,
} from '../../connect/texts.ts';
import { ChangedMeanwhile } from '../../ui/ChangedMeanwhile.tsx';
import { wordsOn } from '../../ui/contrast.ts';
import { Dimmed } from '../../ui/Dimmed.tsx';
import { FaultNotice } from '../../ui/FaultNotice.tsx';
import { IconUpload } from '../../ui/icons.tsx';
import { Loaded } from '../../ui/Loaded.tsx';
import { LoadingRows } from '../../ui/Loading.tsx';
import { SaveBar } from '../../ui/SaveBar.tsx';
import { useEnvironment } from '../shell/environment.ts';
import { useMay } from '../sign-in/queries.ts';
import { type ConnectSettings, changeConnectPage, type Settings, settingsQuery } from './queries.ts';

const maxLogoBytes = 64 * 1024;
const languageChoices = languages.map((value) => ({ value, label: languageNames[value] }));

/** The brand of the connect page. */
export function ConnectPageTab() {
  const environment = useEnvironment();
  const query = useQuery(settingsQuery(environment));
  return (
    <Loaded query={query} loading={<LoadingRows rows={1} height={480} />}>
      {(settings) => <ConnectPageForm key={environment} settings={settings} />}
    </Loaded>
  );
}

export type Look = {
  appName: string;
  logo: string | null;
  theme: ConnectSettings['theme'];
  light: string;
  lightBackground: string;
  lightText: string;
  dark: string;
  darkBackground: string;
  darkText: string;
  language: string | null;
  font: string;
  radius: number;
  returnSchemes: string[];
  texts: OwnTexts;
};
type OwnTexts = Partial<Record<Language, Record<string, string>>>;

const colorFields = [
  { name: 'light', label: 'Color in light mode', theme: 'light', key: 'primary' },
  { name: 'dark', label: 'Color in dark mode', theme: 'dark', key: 'primary' },
  { name: 'lightBackground', label: 'Background in light mode', theme: 'light', key: 'background' },
  { name: 'darkBackground', label: 'Background in dark mode', theme: 'dark', key: 'background' },
  { name: 'lightText', label: 'Text in light mode', theme: 'light', key: 'text' },
  { name: 'darkText', label: 'Text in dark mode', theme: 'dark', key: 'text' },
] as const;

function ConnectPageForm({ settings }: { settings: Settings }) {
  const environment = useEnvironment();
  const isAllowed = useMay()('environment:write');
  const queries = useQueryClient();
  const isColor = (given: string) =>
    /^#[0-9a-f]{6}$/i.test(given) ? null : 'Enter a color such as #2454d6.';
  const form = useForm<Look>({
    initialValues: lookOf(settings.connect),
    validate: Object.fromEntries(colorFields.map(({ name }) => [name, isColor])),
  });
  const isOther = (connect: ConnectSettings, base: Look) =>
    Object.entries(lookOf(connect)).some(
      ([name, value]) =>
        form.isDirty(name) && JSON.stringify(value) !== JSON.stringify(base[name as keyof Look]),
    );
  const isChanged = isOther(settings.connect, form.getInitialValues());
  const show = ({ connect }: Settings) => {
    form.setInitialValues(lookOf(connect));
    form.reset();
  };
  const save = useMutation({
    // Unchanged fields are not sent, because another user may have changed them.
    mutationFn: async (look: Look) => {
      const newest = await queries.fetchQuery({ ...settingsQuery(environment), staleTime: 0 });
      if (isOther(newest.connect, lookOf(settings.connect))) return undefined;
      const { appName, logo, theme, language, font, radius, returnSchemes, texts } = look;
      const changed = colorFields.filter(({ name }) => form.isDirty(name));
      const colorsOf = (wanted: 'light' | 'dark') =>
        Object.fromEntries(
          changed
            .filter((field) => field.theme === wanted)
            .map(({ name, key }) => [key, look[name].toLowerCase()]),
        );
      return changeConnectPage(environment, {
        ...(form.isDirty('appName') && { app_name: appName.trim() === '' ? null : appName.trim() }),
        ...(form.isDirty('logo') && { logo }),
        ...(form.isDirty('theme') && { theme }),
        colors: { light: colorsOf('light'), dark: colorsOf('dark') },
        ...(form.isDirty('language') && { language: language as ConnectSettings['language'] }),
        ...(form.isDirty('font') && { font: font.trim() === '' ? null : font.trim() }),
        ...(form.isDirty('radius') && { radius }),
        ...(form.isDirty('returnSchemes') && { return_schemes: returnSchemes }),
        ...(form.isDirty('texts') && { texts: changedTexts(form.getInitialValues().texts, texts) }),
      });
    },
    onSuccess: (changed) => {
      if (changed === undefined) return;
      queries.setQueryData(settingsQuery(environment).queryKey, changed);
      show(changed);
      notifications.show({ message: 'Saved. New connect pages use this brand.', color: 'green' });
    },
  });
  async function takeLogo(file: File | null): Promise<void> {
    if (file === null) return;
    if (file.size > maxLogoBytes) {
      form.setFieldError('logo', 'At most 64 KB');
      return;
    }
    form.setFieldValue('logo', await dataAddressOf(file));
  }
  const { connect_warnings: warnings } = settings;
  return (
    <SimpleGrid cols={{ base: 1, md: 2 }} spacing="lg">
      <Card>
        <form onSubmit={form.onSubmit((values) => save.mutate(values))}>
          <Stack>
            <Stack gap={2}>
              <Title order={2}>Brand</Title>
              <Dimmed>The connect page for your users in {environment}.</Dimmed>
            </Stack>
            <TextInput
              label="Name of your application"
              placeholder="the application"
              maxLength={80}
              disabled={!isAllowed}
              {...form.getInputProps('appName')}
            />
            <Stack gap={6}>
              <Text size="sm" fw={500}>
                Logo
              </Text>
              <Group gap="sm">
                {form.values.logo !== null && (
                  <img src={form.values.logo} alt="Your logo" height={40} className="picked-logo" />
                )}
                {isAllowed && (
                  <FileButton onChange={takeLogo} accept="image/png,image/jpeg,image/webp,image/svg+xml">
                    {(props) => (
                      <Button variant="default" leftSection={<IconUpload size={16} />} {...props}>
                        {form.values.logo === null ? 'Choose an image' : 'Choose another image'}
                      </Button>
                    )}
                  </FileButton>
                )}
                {isAllowed && form.values.logo !== null && (
                  <Button variant="subtle" onClick={() => form.setFieldValue('logo', null)}>
                    Remove
                  </Button>
                )}
                {!isAllowed && form.values.logo === null && <Dimmed>none</Dimmed>}
              </Group>
              <Text size="xs" c={form.errors.logo ? 'red' : 'dimmed'}>
                {form.errors.logo ?? 'PNG, JPEG, WebP or SVG, at most 64 KB'}
              </Text>
            </Stack>
            <SimpleGrid cols={2}>
              {colorFields.map(({ name, label }) => (
                <ColorInput
                  key={name}
                  label={label}
                  format="hex"
                  disabled={!isAllowed}
                  eyeDropperButtonProps={{ 'aria-label': 'Pick from the screen' }}
                  {...form.getInputProps(name)}
                />
              ))}
            </SimpleGrid>
            {!form.isDirty() &&
              warnings.map(({ path, message }) => (
                <Alert key={path.join('.')} color="yellow" title="Low contrast">
                  <Text size="sm">{message}</Text>
                </Alert>
              ))}
            <Group grow align="flex-start">
              <Select
                label="Theme"
                data={[
                  { value: 'system', label: "Same as the user's system" },
                  { value: 'light', label: 'Always light' },
                  { value: 'dark', label: 'Always dark' },
                ]}
                allowDeselect={false}
                disabled={!isAllowed}
                {...form.getInputProps('theme')}
              />
              <Select
                label="Language"
                placeholder="Like the user's browser"
                data={languageChoices}
                clearable
                disabled={!isAllowed}
                {...form.getInputProps('language')}
              />
            </Group>
            <Group grow align="flex-start">
              <TextInput
                label="Font"
                description="A font that your users' devices have"
                placeholder="Same as the user's system"
                maxLength={48}
                disabled={!isAllowed}
                {...form.getInputProps('font')}
              />
              <NumberInput
                label="Corners"
                description="Of buttons and fields, in pixels"
                min={0}
                max={24}
                allowDecimal={false}
                disabled={!isAllowed}
                {...form.getInputProps('radius')}
                onChange={(value) => form.setFieldValue('radius', Number(value))}
              />
            </Group>
            <TagsInput
              label="Schemes of deep links"
              description="A session's return_url may begin with these, such as myapp, besides http and https"
              maxTags={10}
              // The text of a disabled tag has too little contrast.
              readOnly={!isAllowed}
              {...form.getInputProps('returnSchemes')}
            />
            <TextEditor
              texts={form.values.texts}
              isAllowed={isAllowed}
              onChange={(texts) => form.setFieldValue('texts', texts)}
            />
            {save.isError && <FaultNotice error={save.error} />}
            {isChanged && !save.isPending && (
              <ChangedMeanwhile subject="brand" onDiscard={() => show(settings)} />
            )}
            <SaveBar
              isDirty={form.isDirty()}
              isSaving={save.isPending}
              onUndo={form.reset}
              isAllowed={isAllowed}
              otherwise="Only developers of this environment can change this."
            />
          </Stack>
        </form>
      </Card>
      <ConnectPreview look={form.values} />
    </SimpleGrid>
  );
}

function lookOf(connect: ConnectSettings): Look {
  const { app_name: appName, logo, theme, colors, language, font, radius, texts } = connect;
  return {
    appName: appName ?? '',
    logo,
    theme,
    light: colors.light.primary,
    lightBackground: colors.light.background,
    lightText: colors.light.text,
    dark: colors.dark.primary,
    darkBackground: colors.dark.background,
    darkText: colors.dark.text,
    language,
    font: font ?? '',
    radius,
    returnSchemes: connect.return_schemes,
    texts: texts as OwnTexts,
  };
}

/** Null restores the text of the page. */
function changedTexts(before: OwnTexts, now: OwnTexts): Record<string, Record<string, string | null>> {
  return Object.fromEntries(
    languages.map((language) => {
      const [old, next] = [before[language] ?? {}, now[language] ?? {}];
      const keys = [...new Set([...Object.keys(old), ...Object.keys(next)])];
      const changed = keys.filter((key) => old[key] !== next[key]);
      return [language, Object.fromEntries(changed.map((key) => [key, next[key]?.trim() || null]))];
    }),
  );
}

/** One text at a time: its language, its key, and the value in place of that of the page. */
function TextEditor({
  texts,
  isAllowed,
  onChange,
}: {
  texts: OwnTexts;
  isAllowed: boolean;
  onChange: (texts: OwnTexts) => void;
}) {
  const [language, setLanguage] = useState<Language>('en');
  const [key, setKey] = useState<TextKey>('intro');
  const usual = textIn(language, key);
  const isOwn = (one: string) => texts[language]?.[one] !== undefined;
  const change = (value: string) => {
    const { [key]: _former, ...others } = texts[language] ?? {};
    onChange({ ...texts, [language]: value === '' ? others : { ...others, [key]: value } });
  };
  return (
    <Stack gap="xs">
      <Group grow align="flex-start">
        <Select
          label="Language of the text"
          data={languageChoices}
          allowDeselect={false}
          value={language}
          onChange={(value) => setLanguage(value as Language)}
        />
        <Select
          label="Text"
          searchable
          allowDeselect={false}
          data={textKeys.map((value) => ({ value, label: isOwn(value) ? `${value} (changed)` : value }))}
          value={key}
          onChange={(value) => setKey(value as TextKey)}
        />
      </Group>
      <Textarea
        label="Own text"
        description="Empty: the text of the page. Keep the words in braces."
        placeholder={usual}
        dir="auto"
        autosize
        minRows={2}
        maxLength={500}
        disabled={!isAllowed}
        value={texts[language]?.[key] ?? ''}
        onChange={({ currentTarget }) => change(currentTarget.value)}
      />
    </Stack>
  );
}

function dataAddressOf(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error ?? new Error('The file could not be read.'));
    reader.readAsDataURL(file);
  });
}

const grounds = {
  light: { page: '#ffffff', text: '#16191d' },
  dark: { page: '#1a1b1e', text: '#eceff2' },
};

/** A preview of the brand on the connect page. It has no controls. */
function ConnectPreview({ look }: { look: Look }) {
  const [chosen, setChosen] = useState<'light' | 'dark'>('light');
  const scheme = look.theme === 'system' ? chosen : look.theme;
  const valid = (color: string, otherwise: string) => (/^#[0-9a-f]{6}$/i.test(color) ? color : otherwise);
  const primary = valid(look[scheme], '#2454d6');
  const page = valid(look[`${scheme}Background`], grounds[scheme].page);
  const text = valid(look[`${scheme}Text`], grounds[scheme].text);
  const quiet = `color-mix(in srgb, ${text} 80%, ${page})`;
  const line = `color-mix(in srgb, ${page} 82%, ${text})`;
  const own = look.texts.en ?? {};
  const say = translatorFor('en', { appName: look.appName.trim() || null, own });
  return (
    <Stack gap="xs">
      <Group justify="space-between" mih={36}>
        <Title order={2}>Preview</Title>
        {look.theme === 'system' && (
          <SegmentedControl
            size="xs"
            aria-label="Preview in"
            value={chosen}
            onChange={(value) => setChosen(value === 'dark' ? 'dark' : 'light')}
            data={[
              { value: 'light', label: 'Light' },
              { value: 'dark', label: 'Dark' },
            ]}
          />
        )}
      </Group>
      <Box className="framed" p="xl" style={{ background: page }} data-testid="preview">
        <Stack
          gap="md"
          maw={360}
          mx="auto"
          p="lg"
          bdrs={Math.min(24, 2 * look.radius)}
          style={{
            background: page,
            border: `1px solid ${line}`,
            fontFamily: look.font ? `"${look.font.replace(/[^A-Za-z0-9 -]/g, '')}", system-ui` : undefined,
          }}
        >
          {(look.logo !== null || look.appName.trim() !== '') && (
            <Group gap="sm" wrap="nowrap">
              {look.logo !== null && <img src={look.logo} alt="" height={36} className="picked-logo" />}
              <Text fw={650} c={text} className="wrap">
                {look.appName.trim()}
              </Text>
            </Group>
          )}
          <Text fw={650} size="lg" c={text}>
            {say('connectTitle', { name: 'Google Sheets' })}
          </Text>
          <Text size="sm" c={quiet}>
            {say('intro', { provider: 'Google Sheets' })}
          </Text>
          <Box
            ta="center"
            p={10}
            bdrs={look.radius}
            fw={600}
            fz="sm"
            style={{ background: primary, color: wordsOn(primary) }}
          >
            {say('continueTo', { provider: 'Google Sheets' })}
          </Box>
        </Stack>
      </Box>
    </Stack>
  );
}
