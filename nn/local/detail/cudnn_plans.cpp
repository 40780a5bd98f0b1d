#include <aloni/nn/local/detail/cudnn_plans.hpp>

#include <aloni/core/error.hpp>
#include <aloni/nn/local/detail/cudnn_library.hpp>

#include <algorithm>
#include <span>
#include <utility>

namespace aloni::nn::local::detail {

namespace {

/// A descriptor of cuDNN's backend interface.
class CudnnObject {
 public:
  explicit CudnnObject(cudnnBackendDescriptorType_t type) {
    check_cudnn(cudnn_library().create_descriptor(type, &descriptor_), "a descriptor");
  }
  CudnnObject(CudnnObject&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnObject& operator=(CudnnObject&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~CudnnObject() {
    if (descriptor_) cudnn_library().destroy_descriptor(descriptor_);
  }

  cudnnBackendDescriptor_t get() const { return descriptor_; }

  template <class T>
  CudnnObject& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values,
                   const char* call) {
    check_cudnn(
        cudnn_library().set_attribute(descriptor_, name, type, static_cast<std::int64_t>(values.size()), values.data()),
        call);
    return *this;
  }
  template <class T>
  CudnnObject& set_one(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value,
                       const char* call) {
    return set(name, type, std::span(&value, 1), call);
  }
  CudnnObject& set_integers(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values,
                            const char* call) {
    return set(name, CUDNN_TYPE_INT64, std::span(values), call);
  }
  CudnnObject& refer(cudnnBackendAttributeName_t name, const CudnnObject& other, const char* call) {
    return set_one(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.descriptor_, call);
  }
  CudnnObject& finish(const char* call) {
    check_cudnn(cudnn_library().finalize(descriptor_), call);
    return *this;
  }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

/// Names of tensors in a plan.
enum TensorId : std::int64_t { input_id = 1, output_id, filters_id, bias_id, first_virtual_id };

cudnnDataType_t data_type(ElementType type) {
  switch (type) {
    case ElementType::float32:
      return CUDNN_DATA_FLOAT;
    case ElementType::float64:
      return CUDNN_DATA_DOUBLE;
    case ElementType::bfloat16:
      return CUDNN_DATA_BFLOAT16;
    case ElementType::float16:
      return CUDNN_DATA_HALF;
    case ElementType::int32:
      break;
  }
  throw InvalidArgument("aloni::nn::local: cuDNN", "type", "int32", "float32, float64, bfloat16 or float16");
}
cudnnDataType_t sum_type(ElementType type) {
  return type == ElementType::float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
}

/// Without depth cuDNN has more engines.
bool is_flat_problem(const PaddedProblem& p) {
  return p.input[0] == 1 && p.output[0] == 1 && p.kernel[0] == 1 && p.padding_before[0] == 0 && p.padding_after[0] == 0;
}

std::vector<std::int64_t> pixels_of(const PaddedProblem& p, const std::array<Index, 3>& values) {
  return {values.begin() + (is_flat_problem(p) ? 1 : 0), values.end()};
}

/// cuDNN's order of dimensions: the outer one, then channels, then pixels.
std::vector<std::int64_t> in_order(const PaddedProblem& p, Index outer, Index channels,
                                   const std::array<Index, 3>& values) {
  std::vector<std::int64_t> all{outer, channels};
  const std::vector<std::int64_t> pixels = pixels_of(p, values);
  all.insert(all.end(), pixels.begin(), pixels.end());
  return all;
}

struct TensorOptions {
  bool is_virtual = false;
  Index alignment = 16;
};

CudnnObject make_tensor(std::int64_t id, cudnnDataType_t type, const std::vector<std::int64_t>& extents,
                        const std::vector<std::int64_t>& strides, const TensorOptions& options) {
  CudnnObject tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set_one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type, "the type of a tensor")
      .set_integers(CUDNN_ATTR_TENSOR_DIMENSIONS, extents, "the extents of a tensor")
      .set_integers(CUDNN_ATTR_TENSOR_STRIDES, strides, "the strides of a tensor")
      .set_one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id, "the name of a tensor")
      .set_one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::int64_t{options.alignment},
               "the alignment of a tensor")
      .set_one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, options.is_virtual, "a tensor without memory");
  tensor.finish("a tensor");
  return tensor;
}

std::vector<std::int64_t> strides_in_order(const PaddedProblem& p, const CudnnStrides& s) {
  return in_order(p, s[0], s[4], {s[1], s[2], s[3]});
}

/// The operations of a graph, with all that they refer to.
struct Operations {
  std::vector<CudnnObject> parts;
  std::vector<CudnnObject> operations;

  const CudnnObject& keep(CudnnObject part) {
    parts.push_back(std::move(part));
    return parts.back();
  }
};

/// result = value + summand, or max(0, value) without a summand.
CudnnObject pointwise(cudnnPointwiseMode_t mode, const CudnnObject& descriptor, const CudnnObject& value,
                      const CudnnObject* summand, const CudnnObject& result) {
  const char* const call = mode == CUDNN_POINTWISE_ADD ? "the sum with the bias" : "the ReLU";
  CudnnObject operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.refer(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, descriptor, call)
      .refer(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, value, call);
  if (summand) operation.refer(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *summand, call);
  operation.refer(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, result, call).finish(call);
  return operation;
}

CudnnObject pointwise_descriptor(cudnnPointwiseMode_t mode) {
  CudnnObject descriptor(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  descriptor.set_one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode, "a kind of function")
      .set_one(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT, "the type of a function")
      .finish("a function");
  return descriptor;
}

/// The attributes of a pass.
struct PassAttributes {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t alpha, beta, convolution, input, output, filters;
};
PassAttributes attributes_of(ConvolutionPass pass) {
  switch (pass) {
    case ConvolutionPass::forward:
      break;
    case ConvolutionPass::backward_data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W};
    case ConvolutionPass::backward_filter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW};
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W};
}

CudnnObject make_convolution(const PaddedProblem& p, ElementType type) {
  CudnnObject convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<std::int64_t> before = pixels_of(p, p.padding_before);
  const auto dimensions = static_cast<std::int64_t>(before.size());
  constexpr const char* call = "the numbers of a convolution";
  convolution.set_one(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, dimensions, call)
      .set_one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sum_type(type), call)
      .set_one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION, call)
      .set_integers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before, call)
      .set_integers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, pixels_of(p, p.padding_after), call)
      .set_integers(CUDNN_ATTR_CONVOLUTION_DILATIONS, pixels_of(p, p.dilation), call)
      .set_integers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, pixels_of(p, p.stride), call)
      .finish("a convolution");
  return convolution;
}

Operations make_operations(const CudnnGraph& g) {
  const PaddedProblem& p = g.problem;
  const cudnnDataType_t type = data_type(g.type);
  const Index channels = p.channels / p.groups;
  const CudnnStrides filter_strides = dense_strides(p.kernel, channels);
  const auto output_extents = in_order(p, p.samples, p.filters, p.output);
  const auto output_strides = strides_in_order(p, g.output_strides);

  Operations all;
  all.parts.reserve(16);  // keep() gives references
  const CudnnObject& convolution = all.keep(make_convolution(p, g.type));
  const CudnnObject& x = all.keep(make_tensor(input_id, type, in_order(p, p.samples, p.channels, p.input),
                                              strides_in_order(p, g.input_strides), {.alignment = g.input_alignment}));
  const CudnnObject& w = all.keep(make_tensor(filters_id, type, in_order(p, p.filters, channels, p.kernel),
                                              strides_in_order(p, filter_strides), {.alignment = g.filters_alignment}));
  const CudnnObject& y =
      all.keep(make_tensor(output_id, type, output_extents, output_strides, {.alignment = g.output_alignment}));

  const bool adds = g.pass == ConvolutionPass::forward && g.bias, clips = g.pass == ConvolutionPass::forward && g.relu;
  std::int64_t next_virtual = first_virtual_id;
  const auto intermediate = [&]() -> const CudnnObject& {
    return all.keep(
        make_tensor(next_virtual++, sum_type(g.type), output_extents, output_strides, {.is_virtual = true}));
  };
  const CudnnObject& sums = adds || clips ? intermediate() : y;

  const PassAttributes names = attributes_of(g.pass);
  CudnnObject operation(names.operation);
  constexpr const char* call = "the operation of a convolution";
  if (g.type == ElementType::float64) {
    operation.set_one(names.alpha, CUDNN_TYPE_DOUBLE, 1.0, call).set_one(names.beta, CUDNN_TYPE_DOUBLE, 0.0, call);
  } else {
    operation.set_one(names.alpha, CUDNN_TYPE_FLOAT, 1.0F, call).set_one(names.beta, CUDNN_TYPE_FLOAT, 0.0F, call);
  }
  operation.refer(names.convolution, convolution, call)
      .refer(names.input, x, call)
      .refer(names.output, sums, call)
      .refer(names.filters, w, call)
      .finish(call);
  all.operations.push_back(std::move(operation));
  if (adds) {
    const CudnnObject& sum = all.keep(pointwise_descriptor(CUDNN_POINTWISE_ADD));
    const CudnnObject& bias = all.keep(make_tensor(bias_id, sum_type(g.type), in_order(p, 1, p.filters, {1, 1, 1}),
                                                   in_order(p, p.filters, 1, {p.filters, p.filters, p.filters}),
                                                   {.alignment = g.bias_alignment}));
    all.operations.push_back(pointwise(CUDNN_POINTWISE_ADD, sum, sums, &bias, clips ? intermediate() : y));
  }
  if (clips) {
    const CudnnObject& relu = all.keep(pointwise_descriptor(CUDNN_POINTWISE_RELU_FWD));
    const CudnnObject& source = adds ? all.parts[all.parts.size() - 2] : sums;
    all.operations.push_back(pointwise(CUDNN_POINTWISE_RELU_FWD, relu, source, nullptr, y));
  }
  return all;
}

CudnnObject make_graph(const Operations& all) {
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnObject& operation : all.operations) operations.push_back(operation.get());
  CudnnObject graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph
      .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           std::span<const cudnnBackendDescriptor_t>(operations), "the operations of a graph")
      .finish("a graph");
  return graph;
}

/// Values of an attribute that the descriptor itself has, of at most `most`.
template <class T>
std::vector<T> values_of(const CudnnObject& object, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         std::size_t most, const char* call) {
  std::vector<T> values(most);
  std::int64_t number = 0;
  check_cudnn(
      cudnn_library().get_attribute(object.get(), name, type, static_cast<std::int64_t>(most), &number, values.data()),
      call);
  values.resize(std::min(most, static_cast<std::size_t>(number)));
  return values;
}

/// Descriptors that `object` refers to; cuDNN fills objects that the caller makes.
std::vector<CudnnObject> objects_of(const CudnnObject& object, cudnnBackendAttributeName_t name,
                                    cudnnBackendDescriptorType_t type, const char* call) {
  std::int64_t number = 0;
  check_cudnn(cudnn_library().get_attribute(object.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &number, nullptr),
              call);
  std::vector<CudnnObject> objects;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < number; ++i) {
    objects.emplace_back(type);
    raw.push_back(objects.back().get());
  }
  if (number == 0) return objects;
  check_cudnn(
      cudnn_library().get_attribute(object.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, number, &number, raw.data()),
      call);
  objects.erase(objects.begin() + number, objects.end());
  return objects;
}

/// An attribute that is a text.
std::string text_of(const CudnnObject& object, cudnnBackendAttributeName_t name, const char* call) {
  std::int64_t bytes = 0;
  check_cudnn(cudnn_library().get_attribute(object.get(), name, CUDNN_TYPE_CHAR, 0, &bytes, nullptr), call);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  check_cudnn(cudnn_library().get_attribute(object.get(), name, CUDNN_TYPE_CHAR, bytes, &bytes, text.data()), call);
  text.resize(text.find_last_not_of('\0') + 1);
  return text;
}

/// Bytes of the workspace of a plan; 0 if cuDNN does not tell.
Index workspace_of(const CudnnObject& plan) {
  const auto bytes = values_of<std::int64_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                             "the workspace of a plan");
  return bytes.empty() ? 0 : bytes.front();
}

}  // namespace

struct CudnnDevice::Descriptor {
  CudnnObject object{CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR};
};

struct CudnnPlan::Descriptors {
  std::optional<CudnnObject> configuration;  ///< none for a plan from a file
  CudnnObject plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};
};

CudnnStrides dense_strides(const std::array<Index, 3>& pixels, Index channels) {
  CudnnStrides s{};
  s[4] = 1;
  s[3] = channels;
  s[2] = s[3] * pixels[2];
  s[1] = s[2] * pixels[1];
  s[0] = s[1] * pixels[0];
  return s;
}

PaddedProblem cudnn_problem(const ConvolutionProblem& problem) {
  PaddedProblem p = padded_problem(problem);
  if (p.reads_nothing()) return p;
  for (std::size_t s = 0; s < 3; ++s) {
    const Index rest = problem.input[s] - p.first[s] - p.input[s];
    if (p.padding_after[s] == 0 && rest < p.stride[s]) p.input[s] += rest;
  }
  return p;
}

CudnnGraph dense_graph(const ConvolutionProblem& problem, ConvolutionPass pass, ElementType type) {
  return {.problem = cudnn_problem(problem),
          .pass = pass,
          .type = type,
          .input_strides = dense_strides(problem.input, problem.channels),
          .output_strides = dense_strides(problem.output, problem.filters)};
}

CudnnDevice CudnnDevice::described(const std::string& json) {
  const auto descriptor = std::make_shared<Descriptor>();
  descriptor->object
      .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json.c_str(), json.size()),
           "the description of a device")
      .finish("the description of a device");
  CudnnDevice device;
  device.descriptor_ = descriptor;
  return device;
}

CudnnHandle::CudnnHandle() {
  cudnnHandle_t handle = nullptr;
  check_cudnn(cudnn_library().create(&handle), "access to the device");
  handle_ = handle;
  try {
    const auto descriptor = std::make_shared<CudnnDevice::Descriptor>();
    descriptor->object
        .set_one(CUDNN_ATTR_DEVICEPROP_HANDLE, CUDNN_TYPE_HANDLE, handle, "the properties of the current device")
        .finish("the properties of the current device");
    device_.descriptor_ = descriptor;
  } catch (...) {
    cudnn_library().destroy(handle);
    throw;
  }
}

CudnnHandle::~CudnnHandle() { cudnn_library().destroy(static_cast<cudnnHandle_t>(handle_)); }

bool CudnnHandle::run(const CudnnPlan& plan, const CudnnOperands& operands, void* stream) {
  std::vector<std::int64_t> names{input_id, output_id, filters_id};
  std::vector<void*> pointers{operands.input, operands.output, operands.filters};
  if (operands.bias) {
    names.push_back(bias_id);
    pointers.push_back(operands.bias);
  }
  constexpr const char* call = "the operands of a plan";
  CudnnObject pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set_integers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, names, call)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::span<void* const>(pointers), call)
      .set_one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, operands.workspace, call)
      .finish(call);
  auto* const handle = static_cast<cudnnHandle_t>(handle_);
  const std::lock_guard lock(mutex_);
  check_cudnn(cudnn_library().set_stream(handle, static_cast<cudaStream_t>(stream)), "the stream of a plan");
  const cudnnStatus_t status = cudnn_library().execute(handle, plan.descriptors().plan.get(), pack.get());
  if (status == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER) return false;
  check_cudnn(status, "the execution of a plan");
  return true;
}

std::string CudnnDevice::properties() const {
  return text_of(descriptor_->object, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, "a device as text");
}

std::string CudnnPlan::json() const {
  return text_of(descriptors_->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, "a plan as text");
}

std::optional<CudnnPlan> CudnnPlan::from_json(const std::string& json, const CudnnDevice& device, std::int64_t engine,
                                              bool reduces_precision) {
  const CudnnLibrary& library = cudnn_library();
  auto parts = std::make_shared<Descriptors>();
  parts->plan.refer(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.descriptor().object, "the device of a plan");
  if (library.set_attribute(parts->plan.get(), CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                            static_cast<std::int64_t>(json.size()), json.c_str()) != CUDNN_STATUS_SUCCESS ||
      library.finalize(parts->plan.get()) != CUDNN_STATUS_SUCCESS)
    return std::nullopt;
  const Index workspace = workspace_of(parts->plan);
  return CudnnPlan(std::move(parts), engine, workspace, reduces_precision);
}

namespace {

std::vector<CudnnPlan> plans_of_engines(const CudnnGraph& graph, const CudnnDevice& device,
                                        const CudnnPlanOptions& options) {
  std::vector<CudnnPlan> plans;
  int accepted = 0;
  const CudnnLibrary& library = cudnn_library();
  const Operations operations = make_operations(graph);
  const CudnnObject asked = make_graph(operations);
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    CudnnObject heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    heuristics.refer(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, asked, "the graph of a choice of engines")
        .set_one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, mode, "the kind of a choice of engines")
        .refer(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device.descriptor().object, "the device of a choice of engines");
    const cudnnStatus_t status = library.finalize(heuristics.get());
    if (status / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000) continue;  // the thousands are the kind of an error
    check_cudnn(status, "a choice of engines");
    for (CudnnObject& configuration : objects_of(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                                 CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, "the chosen engines")) {
      if (accepted >= options.first + options.most) return plans;
      const std::vector<CudnnObject> engines = objects_of(configuration, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                          CUDNN_BACKEND_ENGINE_DESCRIPTOR, "the engine of a choice");
      if (engines.empty()) continue;
      const auto number = values_of<std::int64_t>(engines.front(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                                  "the number of an engine");
      if (options.engine >= 0 && (number.empty() || number.front() != options.engine)) continue;
      const auto notes = values_of<cudnnBackendNumericalNote_t>(
          engines.front(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
          "the notes of an engine");
      const auto has = [&](cudnnBackendNumericalNote_t note) { return std::ranges::find(notes, note) != notes.end(); };
      // Tensor cores multiply float as TF32. For 16 bits they are the usual engines.
      const bool reduces = graph.type == ElementType::float32 &&
                           (has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE) || has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
      if (reduces && !options.reduced_precision) continue;
      if (options.repeatable && has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) continue;
      // Their sums of integers are not exact, so parts of a tensor would not give the bits of the whole.
      if (has(CUDNN_NUMERICAL_NOTE_FFT) || has(CUDNN_NUMERICAL_NOTE_WINOGRAD)) continue;
      if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) continue;  // some sums are shorter than float

      auto parts =
          std::make_shared<CudnnPlan::Descriptors>(CudnnPlan::Descriptors{.configuration = std::move(configuration)});
      parts->plan.refer(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *parts->configuration, "the engine of a plan")
          .refer(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device.descriptor().object, "the device of a plan");
      if (library.finalize(parts->plan.get()) != CUDNN_STATUS_SUCCESS) continue;  // this engine refuses after all
      const Index workspace = workspace_of(parts->plan);
      if (workspace > options.most_workspace_bytes) continue;
      if (accepted++ < options.first) continue;
      plans.emplace_back(std::move(parts), number.empty() ? -1 : number.front(), workspace, reduces);
    }
  }
  return plans;
}

}  // namespace

std::vector<CudnnPlan> cudnn_plans(const CudnnGraph& graph, const CudnnDevice& device,
                                   const CudnnPlanOptions& options) {
  if (options.repeatable) {
    auto plans = plans_of_engines(graph, device, options);
    if (!plans.empty()) return plans;
    CudnnPlanOptions any = options;
    any.first = 0;
    any.most = 1;
    if (options.first > 0 && !plans_of_engines(graph, device, any).empty()) return {};
  }
  CudnnPlanOptions all = options;
  all.repeatable = false;
  return plans_of_engines(graph, device, all);
}

}  // namespace aloni::nn::local::detail
